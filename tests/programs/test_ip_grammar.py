"""`slipstack ip` in the forms that scripts read, beside the kernel's `ip` on a like network."""

import json

from harness import test
from harness.process import until


def run(world, *words):
    if world.mode == "kernel":
        return world.stack_ns.ip(*words)
    return world.admin("ip", *words).finish()


def refusal(world, *words):
    try:
        return f"not refused: {run(world, *words)}"
    except (AssertionError, RuntimeError) as error:
        return str(error)


def prepare(world):
    """The same network on the kernel and on the stack."""
    world.use_second_pair()
    if world.mode != "kernel":
        process = world.stack(*world.program("dual_echo.py"), 8000)
        world.wait_port(8000, process=process)
    run(world, "addr", "add", "10.10.0.2/24", "dev", "eth2", "nodad")
    run(world, "route", "add", "default", "via", "10.10.0.1", "table", "10")
    run(world, "route", "add", "10.5.0.0/16", "via", world.PEER, "metric", "5")
    run(world, "route", "append", "10.5.0.0/16", "via", "10.77.0.9", "metric", "7")
    run(world, "rule", "add", "from", "10.10.0.2", "table", "10")
    run(world, "rule", "add", "fwmark", "7", "table", "10")


@test(modes=("kernel", "inprocess"))
def scripts_read_what_ip_prints(world):
    prepare(world)
    lines = run(world, "-o", "-4", "addr", "show", "dev", "eth1").splitlines()
    assert [line.split()[1:4] for line in lines] == [["eth1", "inet", f"{world.STACK}/24"]]
    brief = [line.split() for line in run(world, "-br", "-4", "addr").splitlines()]
    brief = {words[0].partition("@")[0]: words[1:] for words in brief}
    assert brief["eth2"] == ["UP", f"{world.STACK_B}/24", "10.10.0.2/24"], brief
    link = run(world, "-o", "link", "show", "eth1").split()
    assert link[1] == "eth1:" or link[1].startswith("eth1@")
    assert "state UP" in " ".join(link) and "link/ether" in link, link

    def get(*words):
        """The words up to the source's, which the kernel follows by flags."""
        words = run(world, "route", "get", *words).splitlines()[0].split()
        return [word for word in words if word not in ("uid", "0", "cache")]

    assert get(world.PEER) == [world.PEER, "dev", "eth1", "src", world.STACK]
    by_mark = get("8.8.8.8", "mark", "7")
    assert by_mark[:7] == ["8.8.8.8", "via", "10.10.0.1", "dev", "eth2", "table", "10"]
    by_source = get("8.8.8.8", "from", "10.10.0.2")
    assert by_source[:5] == ["8.8.8.8", "from", "10.10.0.2", "via", "10.10.0.1"]
    run(world, "rule", "add", "ipproto", "tcp", "dport", "443", "table", "10", "pref", "900")
    run(world, "rule", "add", "ipproto", "udp", "sport", "1-9", "prohibit", "pref", "901")
    rules = run(world, "rule", "show").splitlines()
    assert "900:\tfrom all ipproto tcp dport 443 lookup 10" in map(str.rstrip, rules), rules
    assert "901:\tfrom all ipproto udp sport 1-9 prohibit" in map(str.rstrip, rules), rules
    told = {it["priority"]: it for it in json.loads(run(world, "-j", "rule", "show"))}
    assert told[900]["ipproto"] == "tcp" and told[900]["dport"] == 443, told
    assert told[901]["sport_start"] == 1 and told[901]["sport_end"] == 9, told
    by_port = get("8.8.8.8", "ipproto", "tcp", "dport", "443")
    assert by_port[:3] == ["8.8.8.8", "via", "10.10.0.1"], by_port
    assert get("10.77.0.1", "ipproto", "tcp", "dport", "80")[1:3] == ["dev", "eth1"]
    why = refusal(world, "route", "get", "10.77.0.1", "ipproto", "udp", "sport", "5")
    assert "Permission denied" in why, why
    for preference in ("900", "901"):
        run(world, "rule", "del", "pref", preference)
    assert get("10.10.0.2")[0] == "local"
    told = json.loads(run(world, "-j", "-p", "-s", "link", "show", "eth1"))[0]
    assert told["stats64"]["rx"]["packets"] > 0 or world.mode == "kernel", told

    assert len(run(world, "rule", "show", "table", "10").splitlines()) == 2
    for words, count in (
        ("root 10.4.0.0/15", 2),
        ("match 10.5.1.0/24", 3),
        ("exact 10.5.1.0/24", 0),
        ("10.5.0.0/16", 2),
    ):
        shown = run(world, "route", "show", *words.split()).splitlines()
        assert len(shown) == count, (words, shown)
    lines = run(world, "-o", "-4", "addr", "show", "to", "10.10.0.0/16").splitlines()
    assert [line.split()[1:4] for line in lines] == [["eth2", "inet", "10.10.0.2/24"]], lines
    assert run(world, "-o", "-4", "addr", "show", "dev", "eth1", "scope", "link") == ""
    run(world, "link", "set", "eth2", "mtu", "1400")
    assert "mtu 1400" in run(world, "link", "show", "eth2")
    run(world, "link", "set", "eth2", "mtu", "1500")
    assert "mtu 1500" in run(world, "link", "show", "eth2")
    if world.mode != "kernel":
        assert "Invalid MTU" in refusal(world, "link", "set", "eth2", "mtu", "9000")
        several = ("nexthop", "via", world.PEER, "nexthop", "via", "10.77.0.9")
        assert "one gateway" in refusal(world, "route", "add", "10.8.0.0/16", *several)
    tables_have_names(world)
    run(world, "route", "flush", "10.5.0.0/16")
    assert run(world, "route", "show", "10.5.0.0/16") == ""
    for word, why in (
        ("unreachable", "No route to host"),
        ("prohibit", "Permission denied"),
        ("blackhole", "Invalid argument"),
    ):
        run(world, "route", "add", word, "10.7.0.0/16")
        assert run(world, "route", "show", "10.7.0.0/16").split()[:2] == [word, "10.7.0.0/16"]
        assert why in refusal(world, "route", "get", "10.7.0.1")
        run(world, "route", "del", word, "10.7.0.0/16")
    # Of equal routes the next one holds when the first is gone.
    for gateway in (world.PEER, "10.77.0.9"):
        run(world, "route", "append", "10.6.0.0/16", "via", gateway)
    assert get("10.6.0.1")[1:3] == ["via", world.PEER]
    run(world, "route", "del", "10.6.0.0/16", "via", world.PEER)
    assert get("10.6.0.1")[1:3] == ["via", "10.77.0.9"]
    assert run(world, "route", "show", "table", "10").startswith("default via 10.10.0.1")
    run(world, "route", "flush", "table", "10")
    assert run(world, "route", "show", "table", "all", "via", "10.10.0.1") == ""
    run(world, "addr", "flush", "dev", "eth2")
    assert run(world, "-o", "-4", "addr", "show", "dev", "eth2") == ""
    run(world, "rule", "flush")
    assert "lookup 10" not in run(world, "rule", "show")


# With other files of iproute2's than the machine's.
WITH_TABLES = """mount --make-rprivate /
mount --bind "$0" "$(ls -d /etc/iproute2 /usr/share/iproute2 2>/dev/null | head -n 1)"
exec "$@"
"""


def tables_have_names(world):
    folder = world.folder / "iproute2"
    (folder / "rt_tables.d").mkdir(parents=True)
    (folder / "rt_tables").write_text("# of ours\n10 wan\n")
    (folder / "rt_tables.d" / "more.conf").write_text("0x14\tlan # 20\n")
    (folder / "rt_tables.d" / "other").write_text("30 nobody\n")
    ours = [world.slipstack, "ip", "--run-dir", world.run_dir]
    command = ["ip"] if world.mode == "kernel" else ours

    def named(*words):
        return world.beside("unshare", "-m", "sh", "-ec", WITH_TABLES, folder, *command, *words)

    named("route", "add", "10.9.0.0/16", "via", world.PEER, "table", "wan").finish()
    named("rule", "add", "from", "10.9.0.1", "table", "lan", "pref", "910").finish()
    assert named("rule", "show").finish().count("910:\tfrom 10.9.0.1 lookup lan") == 1
    for table in ("wan", "10"):
        shown = named("route", "show", "table", table).finish()
        assert f"10.9.0.0/16 via {world.PEER} dev eth1" in shown, shown
    assert "dev eth1 table wan" in named("route", "show", "table", "all").finish()
    named("route", "del", "10.9.0.0/16", "table", "wan").finish()
    run(world, "rule", "del", "pref", "910")
    unknown = named("rule", "add", "from", "10.9.0.1", "table", "nobody")
    assert unknown.wait(10) != 0 and "nobody" in unknown.errors(), unknown.tail()


@test(modes=("kernel", "inprocess"))
def neighbours_are_listed_by_what_is_asked_and_flushed(world):
    prepare(world)
    entry = ("10.77.0.77", "lladdr", "02:00:00:00:00:77", "dev", "eth1")
    run(world, "neigh", "add", *entry, "nud", "permanent")
    shown = run(world, "neigh", "show", "nud", "permanent", "dev", "eth1")
    assert shown.split()[0] == "10.77.0.77", shown
    assert "10.77.0.77" not in run(world, "neigh", "show", "dev", "eth2")
    shown = run(world, "neigh", "get", "10.77.0.77", "dev", "eth1").split()
    assert shown[:5] == ["10.77.0.77", "dev", "eth1", "lladdr", "02:00:00:00:00:77"], shown
    why = refusal(world, "neigh", "get", "10.77.0.78", "dev", "eth1")
    assert "Neighbour entry not found" in why, why
    run(world, "neigh", "flush", "dev", "eth1")
    assert run(world, "neigh", "show", "10.77.0.77", "nud", "permanent") != ""
    run(world, "neigh", "flush", "dev", "eth1", "nud", "permanent")
    assert run(world, "neigh", "show", "10.77.0.77", "nud", "permanent") == ""


def listed(world):
    return world.admin("ipfw", "list").finish()


@test(modes=("inprocess",))
def sysctls_and_reloads_are_told_in_json_and_help_is_there(world):
    prepare(world)
    told = json.loads(world.admin("sysctl", "--json", "net.ipv4.tcp_fin_timeout").finish())
    assert told == {"net.ipv4.tcp_fin_timeout": 60}, told
    assert len(json.loads(world.admin("sysctl", "-a", "--json").finish())) > 50
    assert "route" in run(world, "help") and "nodad" in run(world, "addr", "help")
    rule = "100 setfib 10 ip from 10.9.0.0/24 to any out"
    world.admin("ipfw", "add", *rule.split())
    rules = json.loads(world.admin("ipfw", "--json", "list").finish())
    assert 100 in [rule["number"] for rule in rules], rules
    # What a script repeats for the next process is there already, and is gone already.
    world.admin("ipfw", "-P", 1, "add", *rule.split()).finish()
    assert listed(world).count("00100 setfib") == 1, listed(world)
    # ipfw has no words for a rule that selects by a mark.
    assert "from any to any out" not in listed(world)
    for process in (0, 1):
        world.admin("ipfw", "-P", process, "delete", 100).finish()
    assert "00100" not in listed(world)
    words = [str(world.slipstack), "monitor", "--run-dir", str(world.run_dir)]
    watching = world.beside(*words)

    def hears():
        world.admin("ip", "route", "replace", "10.6.0.0/16", "via", world.PEER)
        world.admin("ip", "route", "del", "10.6.0.0/16")
        return "Deleted 10.6.0.0/16" in watching.output()

    until(hears, 10, "a change is printed")
    world.admin("sysctl", "-w", "net.ipv4.tcp_keepalive_time=77").finish()
    world.admin("ipfw", "-q", "add", 100, "count", "ip", "from", "any", "to", "any").finish()
    for line in ("sysctl tcp.keep_idle = 77000", "filter revision "):
        until(lambda line=line: line in watching.output(), 10, line)
    watching.stop()
    refused = world.admin("ip", "neigh", "flush")
    assert refused.wait() == 1 and "which neighbours" in refused.errors()

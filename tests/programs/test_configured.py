"""`slipstack reload`: a running stack takes over its configuration file, completely or not at
all."""

import json
import os
import signal

from harness import test
from harness.filters import attempt, counts
from harness.process import until

OTHER = "10.77.0.50"


def configured(world, **options):
    """Writes the file: the stack as it was started, and what comes beside it."""
    options = {"if": "eth1", "ip": f"{world.STACK}/24", "gw": world.PEER, **options}
    lines = [f"{name} = {json.dumps(value)}\n" for name, value in options.items()]
    file = world.folder / "slipstack.toml"
    file.write_text("".join(lines))
    return file


def is_answered(client):
    client.sendall(b"x" * 100)
    return client.makefile("rb").read(100) == b"x" * 100


def addresses(world):
    return {
        it["local"]
        for link in json.loads(world.admin("ip", "-json", "addr").finish())
        for it in link["addr_info"]
    }


@test(modes=("inprocess", "instance"))
def a_reload_changes_what_differs_and_ends_no_connection_whose_address_stays(world):
    server = world.stack(*world.program("aborted.py"), 8000)
    world.wait_port(8000, process=server)
    reload = lambda *words: world.admin(
        "reload", "--config", world.folder / "slipstack.toml", *words
    ).finish()
    configured(world)
    assert reload() == "nothing changes\n"
    configured(
        world,
        ip=f"{world.STACK}/24,{OTHER}/32",
        route=f"10.9.0.0/16,via={world.PEER}",
        sysctl="net.ipv4.tcp_fin_timeout=31",
    )
    with world.connect(8000) as kept:
        assert is_answered(kept)
        would = reload("--dry-run").splitlines()
        lines = [f"+ address {OTHER}/32 on eth1", f"+ route 10.9.0.0/16 via {world.PEER} table 254"]
        assert would[:2] == lines and len(would) == 3, would
        assert addresses(world) == {world.STACK}
        assert reload().splitlines() == would
        assert addresses(world) == {world.STACK, OTHER} and reload() == "nothing changes\n"
        assert "10.9.0.0/16" in world.admin("ip", "route").finish()
        assert world.admin("sysctl", "-n", "net.ipv4.tcp_fin_timeout").finish() == "31\n"
        with world.connect(8000, address=OTHER) as client:
            assert is_answered(client) and is_answered(kept)
        # A command's change that the file does not have is undone.
        world.admin("ip", "addr", "add", "10.77.0.51/32", "dev", "eth1").finish()
        configured(world)
        gone = json.loads(reload("--json"))
        assert sorted(it["DelAddress"]["ip"] for it in gone if "DelAddress" in it) == [
            OTHER,
            "10.77.0.51",
        ], gone
        assert addresses(world) == {world.STACK} and is_answered(kept)
        assert "10.9.0.0/16" not in world.admin("ip", "route").finish()


@test(modes=("inprocess", "instance"))
def an_invalid_configuration_changes_nothing(world):
    server = world.stack(*world.program("aborted.py"), 8000)
    world.wait_port(8000, process=server)
    before = (
        world.admin("ip", "-json", "addr").finish(),
        world.admin("ip", "-json", "route").finish(),
    )
    table = [
        (
            {"ip": f"{world.STACK}/24,{OTHER}/32", "route": "10.9.0.0/16,via=192.0.2.1"},
            "invalid gateway; nothing was changed",
        ),
        ({"ipp": OTHER}, "ipp"),
        ({"ip": "10.77.0.2.3"}, "10.77.0.2.3"),
    ]
    with world.connect(8000) as kept:
        for options, word in table:
            refused = world.admin("reload", "--config", configured(world, **options))
            assert refused.wait(10) == 1 and word in refused.errors(), refused.tail()
            after = (
                world.admin("ip", "-json", "addr").finish(),
                world.admin("ip", "-json", "route").finish(),
            )
            assert before == after and is_answered(kept), options
        refused = world.admin("reload")
        assert refused.wait(10) == 1 and "names no address" in refused.errors(), refused.tail()


RULES = """
[[filter]]
rule = "add 100 allow tcp from any to me 8000 setup keep-state"
[[filter]]
rule = "add 200 reset tcp from any to me 9000 setup in via eth1"
"""


@test(modes=("inprocess",))
def filter_profile_and_drop_ins_hold_from_the_start_and_are_reloaded(world):
    file = configured(world, sysctl="net.ipv4.tcp_fin_timeout=31", profile="nginx")
    file.write_text(file.read_text() + RULES)
    for port in (8000, 9000):
        server = world.stack(*world.program("aborted.py"), port, options=("--config", file))
        until(lambda: "reached at" in server.errors(), 10, "the stack is up")
    world.wait_port(8000)
    until(
        lambda: attempt(world, 9000) is ConnectionRefusedError and counts(world)[200] >= 1,
        10,
        "it is filtered",
    )
    reload = lambda *words: world.admin("reload", "--config", file, *words)
    assert reload().finish() == "nothing changes\n"
    with world.connect(8000) as kept:
        assert is_answered(kept)
        rules, drop_ins = world.folder / "more.rules", world.folder / "slipstack.d"
        rules.write_text(
            "# others\nadd 100 allow tcp from any to me 8000 setup keep-state\nadd 300 deny ip from"
            " any to any\n"
        )
        drop_ins.mkdir()
        (drop_ins / "10-first.toml").write_text('filter = "add deny ip from any to any"\n')
        (drop_ins / "50-more.toml").write_text(f'filter = "{rules}"\n')
        changes = [
            "- filter 00200 set 0 reset tcp from any to me 9000 setup in via eth1",
            "+ filter 00300 set 0 deny ip from any to any",
        ]
        assert reload("--dry-run").finish().splitlines() == changes
        assert reload().finish().splitlines() == changes
        until(lambda: attempt(world, 9000, 0.3) is TimeoutError, 10, "the new rules hold")
        assert is_answered(kept), "its rule is still there"
        assert reload().finish() == "nothing changes\n"
        rules.write_text("add 100 allow tcp from any to any\nadd 200 deny tpc from any to any\n")
        refused = reload()
        assert (
            refused.wait(10) == 1 and 'more.rules:2: ipfw: what is "tpc"?' in refused.errors()
        ), refused.tail()
        assert is_answered(kept)
    refused = world.process([str(world.slipstack), "config", "check", str(file)])
    assert refused.wait(10) == 1 and "more.rules:2" in refused.errors(), refused.tail()
    shown = world.process([str(world.slipstack), "config", "show", str(file)])
    assert shown.wait(10) == 0 and "profiles/nginx.toml" in shown.output(), shown.tail()
    rules.write_text("# nothing\n")
    assert len(reload().finish().splitlines()) == 2
    wrong = world.stack("/bin/true", options=("--profile", "nobody"))
    assert wrong.wait(10) == 1 and "no profile 'nobody'" in wrong.errors(), wrong.tail()


@test(modes=("instance",))
def an_instance_reads_its_configuration_again_at_sighup(world):
    file = configured(world)
    world.instance = world.start_instance("t", "--config", file)
    server = world.stack(*world.program("aborted.py"), 8000)
    world.wait_port(8000, process=server)
    with world.connect(8000) as kept:
        configured(
            world,
            filter=(
                "add 100 reset tcp from any to me 8000 setup in;add 200 count ip from any to any"
            ),
        )
        os.kill(world.instance.pid, signal.SIGHUP)
        until(lambda: attempt(world, 8000) is ConnectionRefusedError, 10, "the rules hold")
        assert (
            is_answered(kept)
            and "slipstack: reload: + filter 00100 set 0 reset" in world.instance.errors()
        )
        configured(world, ipp=OTHER)
        os.kill(world.instance.pid, signal.SIGHUP)
        until(lambda: "ipp" in world.instance.errors(), 10, "it is said what is wrong")
        assert is_answered(kept) and attempt(world, 8000) is ConnectionRefusedError
        configured(world, filter="set disable 3")
        os.kill(world.instance.pid, signal.SIGHUP)
        until(lambda: not isinstance(attempt(world, 8000), type), 10, "they have gone")


@test(modes=("instance",))
def instances_of_one_command_read_their_configuration_again_at_its_sighup(world):
    file = configured(world)
    words = [
        world.slipstack,
        "instance",
        "--run-dir",
        world.run_dir,
        "--config",
        file,
        "--count",
        2,
    ]
    group = world.beside(*words)
    until(
        lambda: len(group.output().splitlines()) >= 2 or not group.is_running(),
        15,
        "both instances are ready",
    )
    shown = lambda: world.admin("sysctl", "-n", "net.ipv4.tcp_fin_timeout").finish().split()
    assert set(shown()) == {"60"}
    configured(world, sysctl="net.ipv4.tcp_fin_timeout=31")
    os.kill(group.pid, signal.SIGHUP)
    until(lambda: set(shown()) == {"31"}, 10, "the file holds")
    assert group.is_running(), group.tail()
    group.signal(signal.SIGTERM)
    assert group.wait(10) == 0, group.tail()

"""Routes, policy rules and forwarding (--route, --rule, --forward)."""

import socket

from harness import test
from harness.filters import counts
from harness.process import until

NEAR, DEAD, REFUSED = "10.80.0.1", "10.80.1.1", "10.80.2.1"
# On the wire itself, without a gateway.
DIRECT = "10.90.0.1"
SECOND = "10.77.0.22"
# No host has it.
NOBODY = "10.77.0.9"
LOST = ("timeout", "EHOSTUNREACH")


def start(world, routes, rules=(), extra=(), second=True):
    """A program that calls others, on a stack with these routes and rules: (kernel's words, option)
    each."""
    if world.mode == "kernel":
        if second:
            world.stack_ns.ip("addr", "add", f"{SECOND}/24", "dev", "eth1")
        for words, _ in routes:
            world.stack_ns.ip("route", "add", *words.split())
        for words, _ in rules:
            world.stack_ns.ip("rule", "add", *words.split())
        options = []
    else:
        options = ["--ip", f"{SECOND}/24"] if second else []
        options += [word for _, text in routes for word in ("--route", text)]
        options += [word for _, text in rules for word in ("--rule", text)]
        options += list(extra)
        if world.mode == "instance":
            world.instance = world.start_instance("t", *options)
            options = []
    process = world.stack(*world.program("caller.py"), 7000, options=options)
    world.wait_port(7000, process=process)
    asker = world.connect(7000)
    lines = asker.makefile("rw")

    def call(*words):
        print(*words, file=lines, flush=True)
        return lines.readline().strip()

    return call


def serve(world):
    for address in (NEAR, DEAD, REFUSED, DIRECT):
        world.peer_ns.ip("addr", "add", f"{address}/32", "dev", "lo")
    world.peer(*world.program("dual_echo.py"), 8000)
    world.wait_port(8000, address=NEAR)


# Binds, connects to an address, and tells whether its port is still its own.
KEEPER_OF_A_PORT = """
import errno, socket, sys
own, remote = sys.argv[1:]
one, other = socket.socket(), socket.socket()
one.bind((own, 0))
name = one.getsockname()
print(errno.errorcode[one.connect_ex((remote, 8000))])
print(one.getsockname() == name)
one.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
try:
    other.bind(name)
    print("free")
except OSError as error:
    print(errno.errorcode[error.errno])
one.listen()
print(one.getsockname() == name)
"""


@test(modes=("kernel", "inprocess", "instance"))
def a_socket_whose_connect_finds_no_route_keeps_its_port(world):
    routes = ["unreachable 10.80.2.0/24", "prohibit 10.80.3.0/24"]
    options = []
    if world.mode == "kernel":
        for words in routes:
            world.stack_ns.ip("route", "add", *words.split())
    else:
        for words in routes:
            kind, prefix = words.split()
            options += ["--route", f"{prefix},{kind}"]
    if world.mode == "instance":
        world.instance = world.start_instance("t", *options)
        options = []
    for remote, error in ((REFUSED, "EHOSTUNREACH"), ("10.80.3.1", "EACCES")):
        words = ["python3", "-c", KEEPER_OF_A_PORT, world.STACK, remote]
        told = world.stack(*words, options=options).finish().split()
        assert told == [error, "True", "EADDRINUSE", "True"], told


@test(modes=("kernel", "inprocess", "instance"))
def a_route_leads_by_its_gateway_and_with_its_source(world):
    serve(world)
    routes = [
        (
            f"10.80.0.0/24 via {world.PEER} src {SECOND}",
            f"10.80.0.0/24,via={world.PEER},src={SECOND}",
        ),
        (f"10.80.1.0/24 via {NOBODY}", f"10.80.1.0/24,via={NOBODY}"),
        ("unreachable 10.80.2.0/24", "10.80.2.0/24,unreachable"),
        ("10.90.0.0/24 dev eth1", "10.90.0.0/24,dev=eth1"),
        # The smaller metric wins.
        (f"{REFUSED}/32 via {NOBODY} metric 7", f"{REFUSED}/32,via={NOBODY},metric=7"),
        (f"unreachable {REFUSED}/32 metric 5", f"{REFUSED}/32,unreachable,metric=5"),
    ]
    call = start(world, routes)
    assert call(NEAR, 8000) == SECOND
    assert call(DIRECT, 8000) == world.STACK
    assert call(DEAD, 8000) in LOST
    assert call(REFUSED, 8000) == "EHOSTUNREACH"
    assert call("10.80.2.9", 8000) == "EHOSTUNREACH"
    if world.mode != "kernel":
        text = world.admin("status").output()
        for line in (
            f"route 10.80.0.0/24 via {world.PEER} table 254 src {SECOND}",
            "route 10.80.2.0/24 unreachable table 254",
        ):
            assert line in text, text


@test(modes=("kernel", "inprocess", "instance"))
def a_rule_chooses_the_table_by_the_source(world):
    serve(world)
    routes = [
        (f"default via {NOBODY} table 100", f"0.0.0.0/0,via={NOBODY},table=100"),
        ("unreachable 10.80.2.0/24 table 101", "10.80.2.0/24,unreachable,table=101"),
    ]
    rules = [
        (
            f"from {SECOND} to 10.80.1.0/24 lookup 100 priority 1000",
            f"from={SECOND}/32,to=10.80.1.0/24,table=100",
        ),
        ("to 10.80.2.0/24 lookup 101 priority 900", "to=10.80.2.0/24,table=101,priority=900"),
    ]
    call = start(world, routes, rules)
    assert call(DEAD, 8000) == world.STACK
    assert call(DEAD, 8000, SECOND) in LOST
    assert call(NEAR, 8000, SECOND) == SECOND
    assert call(REFUSED, 8000) == "EHOSTUNREACH"
    near = ["from", SECOND, "to", f"{world.PEER}/32", "table", "100"]
    if world.mode == "kernel":
        world.stack_ns.ip("rule", "add", *near)
    else:
        world.admin("ip", "rule", "add", *near).finish()
    # The table has its default route alone, unless every table has the own networks.
    assert call(world.PEER, 8000, SECOND) in LOST
    if world.mode != "kernel":
        world.admin("sysctl", "-w", "net.add_addr_allfibs=1").finish()
        assert call(world.PEER, 8000, SECOND) == SECOND
        get = ["ip", "route", "get", world.PEER, "from", SECOND]
        assert " via " not in world.admin(*get).finish()
        world.admin("sysctl", "-w", "net.add_addr_allfibs=0").finish()
        assert f" via {NOBODY} " in world.admin(*get).finish()
        text = world.admin("status").output()
        assert f"rule 1000 from {SECOND}/32 to 10.80.1.0/24 table 100" in text, text


@test(modes=("kernel", "inprocess", "instance"))
def a_rule_leads_out_where_the_main_table_has_no_way(world):
    serve(world)
    call = start(world, [])

    def ip(*words):
        if world.mode == "kernel":
            world.stack_ns.ip(*words)
        else:
            world.admin("ip", *words).finish()

    ip("route", "del", "default")
    ip("route", "add", "default", "via", world.PEER, "table", "100")
    assert call(NEAR, 8000) == "ENETUNREACH"
    ip("rule", "add", "fwmark", "5", "table", "100")
    assert call(NEAR, 8000) == "ENETUNREACH"
    assert call(NEAR, 8000, "any", 5) in (world.STACK, SECOND)
    ip("rule", "add", "from", SECOND, "table", "100")
    assert call(NEAR, 8000, SECOND) == SECOND
    assert call(NEAR, 8000, world.STACK) == "ENETUNREACH"
    ip("rule", "add", "to", "10.80.0.0/24", "table", "100")
    assert call(NEAR, 8000) in (world.STACK, SECOND)
    assert call(DEAD, 8000) == "ENETUNREACH"
    ip("rule", "add", "ipproto", "tcp", "dport", "8000", "table", "100")
    assert call(DEAD, 8000) in (world.STACK, SECOND)
    assert call(DEAD, 8001) == "ENETUNREACH"
    if world.mode == "kernel":
        ip("rule", "add", "ipproto", "tcp", "dport", "8001-8009", "table", "100")
    else:
        rule = "add 500 setfib 100 tcp from any to any 8001-8009 out"
        world.admin("ipfw", *rule.split()).finish()
    # The peer does not listen there, but hears of it.
    assert call(DEAD, 8001) == "ECONNREFUSED"
    assert call(DEAD, 8010) == "ENETUNREACH"
    if world.mode != "kernel":
        # An engine has the rule's way a moment before it counts its packets.
        is_counted = lambda: call(DEAD, 8001) == "ECONNREFUSED" and counts(world)[500] >= 1
        until(is_counted, 5, "the rule counts")
        world.admin("ipfw", "delete", 500).finish()
        assert call(DEAD, 8001) == "ENETUNREACH"


@test(modes=("kernel", "inprocess", "instance"))
def rules_select_by_mark_link_and_negation_and_may_refuse(world):
    serve(world)
    rules = [
        ("prohibit to 10.80.1.0/24 pref 100", "prohibit,to=10.80.1.0/24,priority=100"),
        (
            f"not from {SECOND} iif lo lookup 100 pref 103",
            f"not,from={SECOND},iif=lo,table=100,priority=103",
        ),
        ("oif eth1 tos 0x10 lookup 101 pref 104", "oif=eth1,tos=0x10,table=101,priority=104"),
    ]
    call = start(world, [], rules)
    is_kernel = world.mode == "kernel"

    def ip(*words):
        words = [str(word) for word in words]
        if is_kernel:
            world.stack_ns.ip(*words)
        else:
            world.admin("ip", *words).finish()

    def listed():
        said = world.stack_ns.ip("rule") if is_kernel else world.admin("ip", "rule").finish()
        return [line.split() for line in said.splitlines()[1:-2]]

    ip("rule", "add", "unreachable", "to", "10.80.2.0/24", "pref", 101)
    ip("rule", "add", "blackhole", "fwmark", "0x10/0xf0", "pref", 102)
    every = [
        line.split()
        for line in (
            "100: from all to 10.80.1.0/24 prohibit",
            "101: from all to 10.80.2.0/24 unreachable",
            "102: from all fwmark 0x10/0xf0 blackhole",
            f"103: not from {SECOND} iif lo lookup 100",
            "104: from all tos 0x10 oif eth1 lookup 101",
        )
    ]
    assert listed() == every, listed()
    assert call(DEAD, 8000) == "EACCES"
    assert call(REFUSED, 8000) == "ENETUNREACH"
    assert call(NEAR, 8000, "any", 0x15) == "EINVAL"
    assert call(NEAR, 8000) in (world.STACK, SECOND)
    # What table 100 has is for the others.
    ip("route", "add", "unreachable", "10.80.0.0/24", "table", 100)
    assert call(NEAR, 8000, SECOND) == SECOND
    assert call(NEAR, 8000, world.STACK) == "EHOSTUNREACH"
    for which in (["pref", 103], ["prohibit", "to", "10.80.1.0/24"], ["tos", "0x10"]):
        ip("rule", "del", *which)
    assert [line[0] for line in listed()] == ["101:", "102:"], listed()
    assert call(NEAR, 8000, world.STACK) == world.STACK
    # By command as at the start.
    ip("rule", "add", "prohibit", "to", "10.80.1.0/24", "pref", 100)
    ip("rule", "add", "not", "from", SECOND, "iif", "lo", "lookup", 100, "pref", 103)
    ip("rule", "add", "oif", "eth1", "tos", "0x10", "lookup", 101, "pref", 104)
    assert listed() == every, listed()


@test(modes=("inprocess",))
def routes_that_cannot_work_are_refused_with_one_sentence(world):
    table = [
        (["--route", "10.80.0.0/24,via=10.99.0.1"], "its gateway is in no network"),
        (
            ["--route", f"10.80.0.0/24,via={world.PEER},src=10.77.0.99"],
            "its source is not an address",
        ),
        (["--route", "10.80.0.0/33"], "10.80.0.0/33"),
        (["--route", "10.80.0.0/24,via=fd00::1"], "a route such as"),
        (["--route", "10.80.0.0/24,colour=red"], "a route such as"),
        (["--rule", "from=10.77.0.2/32"], "a rule such as"),
        (["--rule", "iif=eth9,table=5"], "--rule with iif=eth9 needs --if eth9"),
        (["--route", f"10.80.0.0/24,via={world.PEER};10.80.0.0/24,unreachable"], "two routes have"),
    ]
    for options, why in table:
        started = world.stack("/bin/true", options=options)
        assert started.wait(10) != 0, options
        assert (
            why in started.errors() and len(started.errors().strip().splitlines()) <= 3
        ), started.tail()


@test(modes=("inprocess", "instance"))
def packets_for_other_hosts_are_forwarded(world):
    far = world._namespace("far")
    # Another station on the peer's end of the wire, which the peer reaches through the stack alone.
    world.peer_ns.ip(
        "link", "add", "link", "eth1", "name", "mv0", "type", "macvlan", "mode", "bridge"
    )
    world.peer_ns.ip("link", "set", "mv0", "netns", far.name)
    far.ip("addr", "add", "10.77.0.4/24", "dev", "mv0")
    far.ip("addr", "add", "10.88.0.1/32", "dev", "lo")
    far.ip("link", "set", "mv0", "up")
    far.ip("route", "add", f"{world.PEER}/32", "via", world.STACK)
    world.peer_ns.ip("route", "add", "10.88.0.0/24", "via", world.STACK)
    start(
        world,
        [("", "10.88.0.0/24,via=10.77.0.4"), ("", "10.89.0.0/24,unreachable")],
        extra=["--forward"],
        second=False,
    )
    world.process(far.prefix() + world.program("dual_echo.py") + ["8000"])
    world.wait_port(8000, address="10.88.0.1")
    with world.connect(8000, address="10.88.0.1") as client:
        client.sendall(b"who\n")
        assert client.makefile().readline().strip().removeprefix("::ffff:") == world.PEER


@test(modes=("inprocess",))
def forwarding_is_refused_if_the_kernel_has_an_address_there(world):
    world.stack_ns.ip("addr", "add", "10.77.0.50/24", "dev", "eth1")
    started = world.stack("/bin/true", options=["--forward"])
    assert started.wait(10) != 0
    assert "the kernel has the address 10.77.0.50 there" in started.errors(), started.tail()


@test(modes=("inprocess", "instance"))
def ten_thousand_routes_are_set_at_once_and_the_longest_prefix_is_taken(world):
    """By one file of commands, beside an established connection."""
    server = world.stack(*world.program("dual_echo.py"), 8000)
    world.wait_port(8000, process=server)
    with world.connect(8000) as held:
        lines = held.makefile()
        nets = [f"30.{n // 250}.{n % 250}.0/24" for n in range(10_000)]
        routes = world.folder / "routes"
        routes.write_text(
            "# far away\n" + "".join(f"route add {net} via 10.77.0.99\n" for net in nets)
        )
        assert world.admin("ip", "-batch", routes).wait(60) == 0
        held.sendall(b"who\n")
        assert lines.readline()
        assert len(world.admin("ip", "route").output().splitlines()) > 10_000
        again = world.admin("ip", "-batch", routes)
        assert again.wait(60) != 0 and "File exists" in again.errors(), again.tail()
        # The one address in the middle of all that is at the peer.
        world.peer_ns.ip("addr", "add", "30.20.7.9/32", "dev", "lo")
        assert world.admin("ip", "route", "add", "30.20.7.9/32", "via", world.PEER).wait(20) == 0
        with world.peer_ns.inside(), socket.create_connection(
            (world.STACK, 8000), 10, ("30.20.7.9", 0)
        ) as client:
            client.sendall(b"who\n")
            assert "30.20.7.9" in client.makefile().readline()

"""Addresses, router and MTU that the link tells (--slaac)."""

import ipaddress
import json
import os
import socket

from harness import test
from harness.process import until

PREFIX = "2001:db8:77::"
OTHER = "2001:db8:78::"
FAR = "2001:db8:99::1"
ROUTER = "fe80::99"
LONG = 3600


def start(world, *words):
    """A program on a stack that solicits routers."""
    if world.mode == "instance" and world.instance is None:
        world.instance = world.start_instance("t", "--slaac")
    options = [] if world.mode == "instance" else ["--slaac"]
    return world.stack(*words, options=options)


def addresses_of(started):
    """The line that the program prints at its start."""
    until(
        lambda: "reached at" in started.errors() or not started.is_running(),
        10,
        "the line with the addresses",
    )
    words = started.errors().replace(",", " ").split()
    found = [word for word in words if ":" in word and "/" in word]
    return [ipaddress.ip_interface(word) for word in found]


def prepare(world):
    for side in (world.stack_ns, world.peer_ns):
        side.sysctl("net.ipv6.conf.eth1.disable_ipv6", 0)
    # The router receives its own advertisements.
    world.peer_ns.sysctl("net.ipv6.conf.eth1.accept_ra", 0)
    # A station that answers is a router too (RFC 4861 7.2.5).
    world.peer_ns.sysctl("net.ipv6.conf.eth1.forwarding", 1)
    world.peer_ns.ip("addr", "add", f"{PREFIX}1/64", "dev", "eth1", "nodad")
    world.peer_ns.ip("addr", "add", f"{FAR}/128", "dev", "lo", "nodad")


def asker_of(namespace, name):
    """The link-local address from which the kernel calls."""
    with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as probe:
        probe.connect(("fe80::1", 9, 0, socket.if_nametoindex(name)))
        return probe.getsockname()[0]


def prepare_second(world):
    for side in (world.stack_ns, world.peer_b_ns):
        side.sysctl("net.ipv6.conf.eth2.disable_ipv6", 0)
    world.peer_b_ns.sysctl("net.ipv6.conf.eth2.accept_ra", 0)
    world.peer_b_ns.sysctl("net.ipv6.conf.eth2.forwarding", 1)
    world.peer_b_ns.ip("addr", "add", f"{OTHER}1/64", "dev", "eth2", "nodad")


@test(modes=("inprocess", "instance"))
def a_router_gives_the_stack_its_addresses(world):
    prepare(world)
    router = world.peer(*world.program("router.py"), PREFIX, 1400)
    until(lambda: "ready" in router.output(), 10, "the router is ready")
    server = start(world, *world.program("dual_echo.py"), 7000)
    addresses = addresses_of(server)
    of_prefix = [ip for ip in addresses if ip.network == ipaddress.ip_network(f"{PREFIX}/64")]
    assert len(of_prefix) == 1 and any(ip.is_link_local for ip in addresses), addresses
    own = str(of_prefix[0].ip)
    world.wait_port(7000, address=own)
    with world.connect(7000, address=own) as client:
        # The peer's MSS is by the MTU that it advertised.
        mss = client.getsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG)
        assert mss <= 1400 - 60, mss
        client.sendall(b"who\n")
        assert client.makefile().readline().strip() == f"{PREFIX}1"


@test(modes=("inprocess", "instance"))
def each_interface_has_the_parameters_of_its_own_router(world):
    """Both routers have one link-local address, and both links different prefixes."""
    world.use_second_pair()
    prepare(world)
    prepare_second(world)
    sides = [
        (world.peer, world.peer_ns, "eth1", PREFIX),
        (world.peer_b, world.peer_b_ns, "eth2", OTHER),
    ]
    for at, namespace, name, prefix in sides:
        namespace.ip("addr", "add", f"{ROUTER}/64", "dev", name, "nodad")
        router = at(*world.program("router.py"), prefix, 1400, env={"ROUTER_ON": name})
        until(lambda: "ready" in router.output(), 10, "the router is ready")
        at(*world.program("dual_echo.py"), 8000)
    stack = Stack(world)
    start(world, *world.program("dual_echo.py"), 7001)
    until(lambda: stack.own(PREFIX) and stack.own(OTHER), 10, "addresses of both prefixes")
    for at, namespace, name, prefix in sides:
        (own,) = stack.own(prefix)
        with namespace.inside():
            # From outside, from the stack by its networks, and by link-local addresses.
            socket.create_connection((own, 7000), 5).close()
        assert stack.call(f"{prefix}1", 8000) == own
        address = stack.call(f"{ROUTER}%{name}", 8000)
        assert address.startswith("fe80::"), address
        with namespace.inside():
            with socket.create_connection((f"{address}%{name}", 7001), 5) as asker:
                asker.sendall(b"who\n")
                told = asker.makefile().readline().strip()
            assert told == asker_of(namespace, name), told
        assert "lladdr" in namespace.ip("-6", "neigh", "show", address)
    shown = world.admin("ip", "addr").output()
    assert "%" not in shown and shown.count("scope link") == 2, shown


@test(modes=("inprocess", "instance"))
def traffic_beyond_the_link_goes_to_the_router(world):
    prepare(world)
    router = world.peer(*world.program("router.py"), PREFIX, 1500)
    until(lambda: "ready" in router.output(), 10, "the router is ready")
    folder = world.folder / "files"
    folder.mkdir()
    (folder / "far").write_text("from afar\n")
    world.peer("/usr/bin/python3", "-m", "http.server", 8000, "--bind", FAR, cwd=folder)
    world.wait_port(8000, address=FAR)
    client = start(world, "curl", "-6", "-g", "-sS", "--max-time", 20, f"http://[{FAR}]:8000/far")
    client.finish()
    assert client.output() == "from afar\n", client.tail()


@test(modes=("inprocess", "instance"))
def without_a_router_the_stack_has_its_link_local_address(world):
    prepare(world)
    server = start(world, *world.program("dual_echo.py"), 7000)
    addresses = addresses_of(server)
    assert [ip.is_link_local for ip in addresses] == [True], addresses
    world.wait_port(7000)


class Router:
    """A router that changes its advertisement on request."""

    def __init__(self, world, **plan):
        self.file = world.folder / "router.json"
        self.say(**plan)
        process = world.peer(*world.program("router.py"), self.file)
        until(lambda: "ready" in process.output(), 10, "the router is ready")

    def say(self, **plan):
        new = self.file.with_suffix(".new")
        new.write_text(json.dumps(plan))
        os.replace(new, self.file)


class Stack:
    """A program on the stack that connects out when it is asked to over IPv4."""

    def __init__(self, world):
        self.world = world
        self.process = start(world, *world.program("caller.py"), 7000)
        world.wait_port(7000, process=self.process)
        self.asker = world.connect(7000)
        self.lines = self.asker.makefile("rw")

    def call(self, host, port):
        print(host, port, file=self.lines, flush=True)
        return self.lines.readline().strip()

    def device(self):
        return json.loads(self.world.admin("status", "--json").output())[0]["device"]

    def keeper(self):
        reports = json.loads(self.world.admin("status", "--json").output() or "[]")
        return reports[0]["keeper_pid"] if reports else None

    def own(self, prefix):
        """Its addresses of a prefix, as the status tells them."""
        found = [
            ipaddress.ip_interface(f"{ip}/{length}") for ip, length in self.device()["addresses"]
        ]
        return [
            str(ip.ip)
            for ip in found
            if ip.version == 6 and ip.network == ipaddress.ip_network(f"{prefix}/64")
        ]


@test(modes=("inprocess", "instance"))
def an_address_is_deprecated_and_removed_when_its_time_is_over(world):
    prepare(world)
    world.peer_ns.ip("addr", "add", f"{OTHER}1/64", "dev", "eth1", "nodad")
    Router(world, prefixes=[[PREFIX, 16, 8], [OTHER, LONG, LONG]])
    stack = Stack(world)
    world.peer(*world.program("dual_echo.py"), 8000)
    (short,), (long,) = stack.own(PREFIX), stack.own(OTHER)
    # The longest common prefix decides while both are preferred.
    until(
        lambda: stack.call(f"{PREFIX}1", 8000) == short, 5, "a call from the address of the prefix"
    )
    until(
        lambda: stack.call(f"{PREFIX}1", 8000) == long, 12, "the deprecated address is not chosen"
    )
    # A deprecated address is still reached.
    world.connect(7000, address=short).close()
    until(lambda: not stack.own(PREFIX), 14, "the address is removed")
    assert stack.call(f"{OTHER}1", 8000) == long
    try:
        world.connect(7000, 2, address=short).close()
        raise AssertionError("the removed address is reached")
    except OSError:
        pass
    world.connect(7000, address=long).close()


@test(modes=("inprocess", "instance"))
def later_advertisements_apply_to_running_programs(world):
    prepare(world)
    router = Router(world, prefixes=[[PREFIX, LONG, LONG]], mtu=1500)
    stack = Stack(world)
    world.peer(*world.program("dual_echo.py"), 8000)
    world.wait_port(8000, address=f"{PREFIX}1")
    (first,) = stack.own(PREFIX)
    world.peer_ns.ip("addr", "add", f"{OTHER}1/64", "dev", "eth1", "nodad")
    router.say(prefixes=[[PREFIX, LONG, LONG], [OTHER, LONG, LONG]], mtu=1400, hops=33)
    until(lambda: stack.own(OTHER), 5, "an address of the second prefix")
    (second,) = stack.own(OTHER)
    assert stack.own(PREFIX) == [first]
    with world.connect(7000, address=second) as client:
        mss = client.getsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG)
        assert mss <= 1400 - 60, mss
    until(lambda: stack.call(f"{OTHER}1", 8000) == second, 5, "a call from the second address")
    assert stack.call(FAR, 8000) in (first, second)


@test(modes=("inprocess", "instance"))
def a_router_that_goes_away_leaves_no_way_out_until_it_is_back(world):
    prepare(world)
    router = Router(world, prefixes=[[PREFIX, LONG, LONG]])
    stack = Stack(world)
    world.peer(*world.program("dual_echo.py"), 8000)
    world.wait_port(8000, address=FAR)
    (own,) = stack.own(PREFIX)
    assert stack.call(FAR, 8000) == own
    router.say(prefixes=[[PREFIX, LONG, LONG]], lifetime=0)
    until(lambda: stack.call(FAR, 8000) == "ENETUNREACH", 5, "no way out")
    assert stack.call(f"{PREFIX}1", 8000) == own
    router.say(prefixes=[[PREFIX, LONG, LONG]], lifetime=5)
    until(lambda: stack.call(FAR, 8000) == own, 5, "the way out is back")
    until(lambda: stack.call(FAR, 8000) == "ENETUNREACH", 10, "its time is over")


@test(modes=("inprocess", "instance"))
def a_redirect_is_followed_by_programs_that_run(world):
    prepare(world)
    other = "2001:db8:99::2"
    world.peer_ns.ip("addr", "add", f"{other}/128", "dev", "lo", "nodad")
    plan = {"prefixes": [[PREFIX, LONG, LONG]]}
    router = Router(world, **plan)
    stack = Stack(world)
    world.peer(*world.program("dual_echo.py"), 8000)
    world.wait_port(8000, address=FAR)
    (own,) = stack.own(PREFIX)
    assert stack.call(FAR, 8000) == own and stack.call(other, 8000) == own
    # To a first hop that there is not: only what was redirected is lost.
    router.say(redirects=[[own, other, "fe80::dead"]], **plan)
    until(lambda: stack.call(other, 8000) != own, 5, "the redirect is followed")
    assert stack.call(FAR, 8000) == own
    # The hop comes into being: what waits for it, the end of a call maybe, is delivered.
    world.peer_ns.ip("addr", "add", "fe80::dead/64", "dev", "eth1", "nodad")
    until(lambda: stack.call(other, 8000) == own, 10, "a call by the new first hop")


@test(modes=("inprocess", "instance"))
def a_successor_of_the_keeper_keeps_the_routers_parameters(world):
    prepare(world)
    world.peer_ns.ip("addr", "add", f"{OTHER}1/64", "dev", "eth1", "nodad")
    router = Router(world, prefixes=[[PREFIX, 25, 25]])
    stack = Stack(world)
    world.peer(*world.program("dual_echo.py"), 8000)
    world.wait_port(8000, address=f"{OTHER}1")
    (first,) = stack.own(PREFIX)
    assert stack.call(f"{PREFIX}1", 8000) == first
    former = stack.keeper()
    os.kill(former, 9)
    until(lambda: stack.keeper() not in (None, former), 5, "a successor")
    assert stack.own(PREFIX) == [first]
    router.say(prefixes=[[OTHER, LONG, LONG]])
    until(lambda: stack.own(OTHER), 5, "an address of the second prefix")
    (second,) = stack.own(OTHER)
    until(lambda: stack.call(f"{OTHER}1", 8000) == second, 5, "a call from the second address")
    until(lambda: not stack.own(PREFIX), 27, "the first address is removed")
    world.connect(7000, address=second).close()


@test(modes=("inprocess", "instance"))
def a_router_that_falls_silent_is_left_for_another(world):
    prepare(world)
    alive = world.folder / "alive"
    alive.touch()
    silent = world.peer(*world.program("silent_router.py"), PREFIX, alive)
    until(lambda: "ready" in silent.output(), 10, "the first router is ready")
    stack = Stack(world)
    world.peer(*world.program("echo_both.py"), 8000, 8001)
    world.wait_port(8000, address=FAR)
    assert stack.call(FAR, 8000) == "timeout", silent.tail()
    assert f"to {FAR}" in silent.output(), silent.tail()
    router = Router(world, prefixes=[[PREFIX, LONG, LONG]])
    router.say(prefixes=[[PREFIX, LONG, LONG]], hops=63)
    routers = lambda: [ip for ip in stack.device()["gateways"] if ":" in ip]
    until(lambda: len(routers()) > 1, 10, "both routers are known")
    # While it answers it is used, although it passes nothing on.
    assert stack.call(FAR, 8000) == "timeout", silent.tail()
    alive.unlink()
    until(
        lambda: stack.call(FAR, 8000) in stack.own(PREFIX), 30, "the way goes by the other router"
    )

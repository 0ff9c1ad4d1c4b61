"""Addresses, router and MTU that the link tells (--slaac)."""

import ipaddress
import socket

from harness import test
from harness.process import until

PREFIX = "2001:db8:77::"
FAR = "2001:db8:99::1"


def start(world, *words):
    """A program on a stack that asks its link."""
    if world.mode == "instance" and world.instance is None:
        world.instance = world.start_instance("t", "--slaac")
    options = [] if world.mode == "instance" else ["--slaac"]
    return world.stack(*words, options=options)


def addresses_of(started):
    """What the line at the start says."""
    until(lambda: "reached at" in started.errors() or not started.is_running(), 10, "the line with the addresses")
    words = started.errors().replace(",", " ").split()
    found = [word for word in words if ":" in word and "/" in word]
    return [ipaddress.ip_interface(word) for word in found]


def prepare(world):
    for side in (world.stack_ns, world.peer_ns):
        side.sysctl("net.ipv6.conf.eth1.disable_ipv6", 0)
    world.peer_ns.ip("addr", "add", f"{PREFIX}1/64", "dev", "eth1", "nodad")
    world.peer_ns.ip("addr", "add", f"{FAR}/128", "dev", "lo", "nodad")


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
def what_is_off_the_link_goes_to_the_router(world):
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

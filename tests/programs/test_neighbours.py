"""Neighbours that have known another station by our address."""

import json
import os
import signal

from harness import test
from harness.process import until

SLIPSTACK = ("inprocess", "instance")
FORMER = "02:00:00:00:00:99"


def expect_another(world, address):
    world.peer_ns.ip("neigh", "replace", address, "lladdr", FORMER, "nud", "stale", "dev", "eth1")


def known_as(world, address):
    """The link address that the peer's kernel has for `address`; no request is sent."""
    words = world.peer_ns.ip("neigh", "show", address, "dev", "eth1").split()
    return words[words.index("lladdr") + 1] if "lladdr" in words else None


def keeper(world):
    reports = json.loads(world.admin("status", "--json").output() or "[]")
    return reports[0]["keeper_pid"] if reports else None


def is_reached_at_once(world, address):
    """After unanswered unicast requests, the former station would be given up after eight
    seconds."""
    with world.connect(7000, seconds=0.9, address=address) as sock:
        sock.sendall(b"who\n")
        return sock.makefile().readline() != ""


# The kernel announces nothing (arp_notify and ndisc_notify are off).
@test(modes=SLIPSTACK)
def a_peer_with_an_outdated_neighbour_entry_reaches_the_stack_at_once(world):
    world.use_ipv6()
    for address in (world.STACK, world.STACK6):
        expect_another(world, address)
    server = world.stack(*world.program("dual_echo.py"), 7000)
    until(lambda: "ready" in server.output() or not server.is_running(), 10, "the server is ready")
    for address in (world.STACK, world.STACK6):
        assert is_reached_at_once(world, address), server.tail()


@test(modes=SLIPSTACK)
def a_keeper_that_takes_over_announces_the_addresses_again(world):
    world.use_ipv6()
    server = world.stack(*world.program("dual_echo.py"), 7000)
    until(lambda: "ready" in server.output() or not server.is_running(), 10, "the server is ready")
    for address in (world.STACK, world.STACK6):
        assert is_reached_at_once(world, address), server.tail()
    own = known_as(world, world.STACK)
    assert own not in (None, FORMER)
    former = keeper(world)
    for address in (world.STACK, world.STACK6):
        expect_another(world, address)
    os.kill(former, signal.SIGKILL)
    # The stack resolves no address meanwhile: the peer learns from an announcement.
    for address in (world.STACK, world.STACK6):
        until(lambda: known_as(world, address) == own, 5, f"the peer is told of {address}")
    assert keeper(world) not in (None, former)
    for address in (world.STACK, world.STACK6):
        assert is_reached_at_once(world, address), server.tail()


@test(modes=("kernel", *SLIPSTACK))
def a_station_that_changes_its_link_layer_address_is_answered_there(world):
    """The peer's request announces it; the former entry would be valid for half a minute."""
    server = world.stack(*world.program("dual_echo.py"), 7000)
    world.wait_port(7000, process=server)
    with world.connect(7000) as sock:
        lines = sock.makefile("rw")
        print("who", file=lines, flush=True)
        assert lines.readline()
        world.peer_ns.ip("link", "set", "eth1", "address", "02:00:00:00:00:aa")
        world.peer_ns.ip("neigh", "flush", "all")
        sock.settimeout(5)
        print("who", file=lines, flush=True)
        assert lines.readline()

"""Neighbours that have known another station by our address."""

from harness import test
from harness.process import until

SLIPSTACK = ("inprocess", "instance")
FORMER = "02:00:00:00:00:99"


def expect_another(world, address):
    world.peer_ns.ip("neigh", "replace", address, "lladdr", FORMER, "nud", "stale", "dev", "eth1")


def is_reached_at_once(world, address):
    """Asked by unicast, and in vain, the former station would be given up after eight seconds."""
    with world.connect(7000, seconds=0.9, address=address) as sock:
        sock.sendall(b"who\n")
        return sock.makefile().readline() != ""


# The kernel announces nothing (arp_notify and ndisc_notify are off).
@test(modes=SLIPSTACK)
def who_has_known_another_by_our_address_reaches_us_at_once(world):
    world.use_ipv6()
    for address in (world.STACK, world.STACK6):
        expect_another(world, address)
    server = world.stack(*world.program("dual_echo.py"), 7000)
    until(lambda: "ready" in server.output() or not server.is_running(), 10, "the server is ready")
    for address in (world.STACK, world.STACK6):
        assert is_reached_at_once(world, address), server.tail()

"""Clients of UDP that change their port and address in the middle of a transfer."""

from harness import test
from harness.process import until

PORT = 7000
SENT = "301 echoed"
# Kinds of servers in programs/migrating.py.
KINDS, HANDED = range(3), 1


def asks(start, world, address, kind, own):
    words = world.program("migrating.py")
    client = start(*words, "client", address, PORT + kind, ",".join(own))
    assert client.finish(20).strip() == SENT


@test
def a_transfer_stays_with_its_worker_when_the_client_changes_its_address(world):
    other = "10.77.0.3"
    world.peer_ns.ip("addr", "add", f"{other}/24", "dev", "eth1")
    server = world.stack(*world.program("migrating.py"), "server", PORT)
    until(lambda: "ready" in server.output(), 10, "the server is ready")
    for kind in KINDS:
        asks(world.peer, world, world.address, kind, [world.PEER, other])
    assert server.output() == "ready\n", server.output()


@test
def a_client_changes_its_port_in_the_middle_of_a_transfer(world):
    server = world.peer(*world.program("migrating.py"), "server", PORT)
    until(lambda: "ready" in server.output(), 10, "the server is ready")
    asks(world.stack, world, world.peer_address, HANDED, [world.address, "0.0.0.0"])
    assert server.output() == "ready\n", server.output()

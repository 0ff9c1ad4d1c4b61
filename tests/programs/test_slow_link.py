"""Datagrams on a link that is slower than the program that sends them."""

import contextlib
import socket

from harness import test
from harness.net import command
from harness.world import PYTHON

PORT = 7000

SENDER = """
import socket, sys, time
address, count, length, how = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
sock = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM)
if how == "connected":
    sock.connect((address, 7000))
full = 0
for number in range(count):
    datagram = number.to_bytes(4, "big") + bytes(length - 4)
    if how == "nonblocking":
        sock.setblocking(False)
    try:
        sock.sendto(datagram, (address, 7000)) if how != "connected" else sock.send(datagram)
    except BlockingIOError:
        full += 1
        sock.setblocking(True)
        sock.sendto(datagram, (address, 7000))
    if number == 0:
        # The neighbour is known then.
        time.sleep(0.3)
sock.close()
print(full, flush=True)
sys.stdin.readline()
"""


@contextlib.contextmanager
def slow_link(world, rate):
    """The interface's queue holds more than a send buffer."""
    words = ["root", "tbf", "rate", rate, "burst", "20kb", "limit", "600kb"]
    command("tc", "-n", world.stack_ns.name, "qdisc", "add", "dev", "eth1", *words)
    yield


def all_come(world, count, length, how="blocking", address=None, rate="16mbit"):
    """Returns how often the sender found no room."""
    family = socket.AF_INET6 if ":" in (address or "") else socket.AF_INET
    with slow_link(world, rate), world.at_peer():
        sink = socket.socket(family, socket.SOCK_DGRAM)
    with sink:
        sink.bind(("", PORT))
        sink.settimeout(3)
        to = address or world.peer_address
        sender = world.stack(PYTHON, "-c", SENDER, to, count, length, how, stdin=-1)
        for number in range(count):
            try:
                datagram = sink.recv(65536)
            except TimeoutError:
                raise AssertionError(f"only {number} of {count} came") from None
            assert int.from_bytes(datagram[:4], "big") == number, f"one is lost before {number}"
            assert len(datagram) == length
        sender.child.stdin.close()
        return int(sender.finish(10))


@test
def datagrams_on_a_slow_link_are_not_lost(world):
    all_come(world, 1000, 1000)


@test
def datagrams_of_a_connected_socket_on_a_slow_link_are_not_lost(world):
    all_come(world, 1000, 1000, "connected")


@test
def a_sender_on_a_slow_link_finds_no_room(world):
    assert all_come(world, 3000, 1000, "nonblocking") > 0


@test
def fragments_on_a_slow_link_are_not_lost(world):
    all_come(world, 60, 20_000)


@test
def datagrams_on_a_slow_link_are_not_lost_over_ipv6(world):
    world.use_ipv6()
    all_come(world, 1000, 1000, address=world.PEER6)

"""Programs that wait for room in the send buffer of a UDP socket."""

import contextlib
import socket

from harness import test
from harness.net import command

PORT = 7000
SECONDS = 1.5


@contextlib.contextmanager
def slow_link(world):
    """The interface takes 4 Mbit/s, and a device's queue holds more than a send buffer."""
    words = ["root", "tbf", "rate", "4mbit", "burst", "8kb", "limit", "1mb"]
    command("tc", "-n", world.stack_ns.name, "qdisc", "add", "dev", "eth1", *words)
    with world.at_peer(), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind(("", PORT))
        yield sock


def fill(world, how):
    """Returns the waits for room, those in vain, the datagrams sent, and milliseconds."""
    words = [*world.program("fills_udp.py"), world.peer_address, PORT, SECONDS, how]
    return [int(word) for word in world.stack(*words).finish(20).split()]


def waits_and_does_not_spin(world, how):
    with slow_link(world):
        waits, vain, sent, took_ms = fill(world, how)
        print(how, waits, vain, sent, took_ms)
        assert sent > 100, sent
        assert vain <= 5 + waits // 10, (waits, vain, sent, took_ms)
        assert waits <= sent, (waits, vain, sent, took_ms)


@test
def poll_returns_when_a_udp_socket_has_room(world):
    waits_and_does_not_spin(world, "poll")


@test
def poll_returns_when_a_bound_udp_socket_has_room(world):
    waits_and_does_not_spin(world, "poll-bound")


@test
def epoll_returns_when_a_udp_socket_has_room(world):
    waits_and_does_not_spin(world, "epoll")


@test
def epoll_returns_when_a_bound_udp_socket_has_room(world):
    waits_and_does_not_spin(world, "epoll-bound")


@test
def an_edge_comes_when_a_bound_udp_socket_has_room(world):
    waits_and_does_not_spin(world, "edge-bound")

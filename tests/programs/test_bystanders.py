"""Threads that wait for the kernel's descriptors alone, beside one that waits for sockets."""

import contextlib
import socket
import time

from harness import test
from harness.process import until

PORT = 7000
REQUESTS = 300


@contextlib.contextmanager
def asking(world):
    """Returns a function that sends a datagram and returns the answer."""
    server = world.stack(*world.program("bystander.py"), PORT)
    until(lambda: "waits" in server.output(), 10, "it waits")
    with world.at_peer():
        sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.settimeout(5)

    def ask(text, port=PORT):
        sock.sendto(text, (world.address, port))
        return sock.recv(2000)

    with sock:
        yield ask


@test(modes=("inprocess",))
def a_thread_without_sockets_is_not_woken_for_those_of_another_thread(world):
    with asking(world) as ask:
        ask(b"count")
        before = int(ask(b"count"))
        for _ in range(REQUESTS):
            woken = int(ask(b"count")) - before
    assert woken < REQUESTS / 10, f"woken {woken} times for {REQUESTS} requests"


@test
def a_thread_beside_one_with_sockets_hears_the_kernels_descriptors(world):
    with asking(world) as ask:
        for _ in range(50):
            ask(b"count")
            assert ask(b"pipe") == b"from the pipe"


@test
def a_thread_that_gets_its_first_socket_while_the_other_one_sleeps_serves_it(world):
    with asking(world) as ask:
        ask(b"count")
        assert ask(b"add") == b"added"
        begun = time.monotonic()
        for number in range(100):
            text = b"%d" % number
            assert ask(text, PORT + 1) == text
        took = time.monotonic() - begun
    assert took < 2, f"{took:.1f} s for 100 requests"

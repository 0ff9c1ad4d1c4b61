"""kqueue and kevent of the C library, filter by filter, for sockets of the stack and descriptors of
the kernel."""

import socket
import struct

from harness import test
from harness.http import get
from harness.native import EXAMPLES, compiled, start
from harness.process import until
from harness.registry import Skip
from harness.world import PROGRAMS

ON_STACK = ("inprocess", "instance")
PORT = 7000


@test(modes=ON_STACK)
def a_kqueue_server_in_the_loop_of_ff_run_serves(world):
    server = start(world, compiled(world, EXAMPLES / "kqueue_http.c", "g++"))
    world.wait_port(80, process=server)
    for _ in range(20):
        assert get(world, 80, "/") == (200, b"hello from the stack\n")
    with world.connect(80) as sock, sock.makefile("rb") as answer:
        # The server ends a connection of HTTP/1.0 first.
        sock.sendall(b"GET / HTTP/1.0\r\n\r\n")
        assert answer.read().endswith(b"Connection: close\r\n\r\nhello from the stack\n")
    assert server.stop() == 0


@test(modes=ON_STACK)
def kqueue_reports_the_events_of_freebsd(world):
    program = start(world, compiled(world, PROGRAMS / "kqueue_calls.c"))
    peer = Peer(world)
    for step in (
        "connect two",
        "send abc on the first",
        "send def on the first",
        "send abc on the second",
        "close the second",
        "reset the first",
    ):
        until(lambda: f"go: {step}" in program.output() or not program.is_running(), 15, step)
        peer.do(step)
    assert program.wait(15) == 0, program.tail()
    assert "FAILED" not in program.output(), program.tail()


@test(modes=ON_STACK)
def a_kqueue_inside_of_queues_and_sets_is_ready_in_all_of_them(world):
    program = start(world, compiled(world, PROGRAMS / "kqueue_nested.c"))
    assert program.wait(20) == 0, program.tail()


@test(modes=("inprocess",))
def forks_and_new_programs_of_processes_are_events(world):
    program = start(world, compiled(world, PROGRAMS / "kqueue_processes.c"))
    code = program.wait(20)
    if code == 77:
        raise Skip("the kernel allows no performance events here")
    assert code == 0, program.tail()


class Peer:
    """Two connections to the program; sends the commands on them."""

    def __init__(self, world):
        self.world = world
        self.ends = {}

    def do(self, step):
        words = step.split()
        if words[0] == "connect":
            self.ends = {name: self.world.connect(PORT) for name in ("first", "second")}
        elif words[0] == "send":
            self.ends[words[-1]].sendall(words[1].encode())
        elif words[0] == "reset":
            end = self.ends[words[-1]]
            end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            end.close()
        else:
            self.ends[words[-1]].close()

"""Connections of other processes that several threads of a process use."""

import contextlib
import os
import signal
import threading
import time

from harness import test
from harness.process import until

PORT = 7260
WAYS = ("turns", "duplex", "readers", "polled", "epolled")
# The kernel has none.
QUEUED = "queued"
LEN = 16
HEAD = 9


class Client:
    """A connection whose process has threads that use it in some `way`."""

    def __init__(self, world, way):
        self.world, self.sock = world, world.connect(PORT)
        self.sock.settimeout(10)
        self.sock.sendall(way.encode().ljust(LEN))
        self.count = 0

    def ask(self):
        """Returns the answering process."""
        self.count += 1
        question = b"question %6d\n" % self.count
        self.sock.sendall(question)
        return self.answer_to(question)

    def answer_to(self, question):
        got = b""
        while len(got) < HEAD + LEN:
            piece = self.sock.recv(HEAD + LEN - len(got))
            assert piece, f"the end after {got!r}"
            got += piece
        assert got[HEAD:] == question, (got, question)
        return int(got[:HEAD])

    def is_held_by(self, pid):
        """Whether the process has the connection on an engine of its own."""
        rows = [line.split() for line in self.world.admin("status").output().splitlines()]
        port = f":{self.sock.getsockname()[1]}"
        held = [row[0] for row in rows if row[2:4] == ["tcp", "stack"] and port in " ".join(row)]
        return str(pid) in held

    def end(self):
        self.sock.close()


def moves(world, server, way):
    client = Client(world, way)
    pid = client.ask()
    assert pid != server.pid
    end = time.monotonic() + 2
    while time.monotonic() < end:
        assert client.ask() == pid
        time.sleep(0.001 if client.count < 100 else 0.02)
    if world.mode != "kernel":

        def is_there():
            assert client.ask() == pid
            return client.is_held_by(pid)

        until(is_there, 10, f"the connection is its user's, {way}")
    for _ in range(20):
        assert client.ask() == pid
    client.end()


@test
def a_connection_goes_to_a_child_one_of_whose_threads_was_cancelled_in_a_call(world):
    server = served(world, "forked")
    client = Client(world, "cancelled")
    time.sleep(0.3)
    client.sock.settimeout(0.5)
    with contextlib.suppress(TimeoutError):
        while client.sock.recv(1 << 20):
            pass
    client.sock.settimeout(10)
    pid = client.ask()
    assert pid != server.pid

    def is_there():
        assert client.ask() == pid
        return world.mode == "kernel" or client.is_held_by(pid)

    until(is_there, 10, "the connection is its user's")
    client.end()


def ways_of(world):
    return WAYS if world.mode == "kernel" else (*WAYS, QUEUED)


def served(world, how):
    server = world.stack(*world.program("sharing.py"), PORT, how)
    until(lambda: is_open(world), 10, "the listener")
    return server


def is_open(world):
    with contextlib.suppress(ConnectionRefusedError):
        world.connect(PORT).close()
        return True
    return False


@test
def a_connection_goes_to_a_child_whose_threads_share_it(world):
    server = served(world, "forked")
    for way in ways_of(world):
        moves(world, server, way)


@test
def a_connection_goes_to_threads_that_got_it_in_a_message(world):
    server = served(world, "sent")
    for way in ways_of(world):
        moves(world, server, way)


@test
def a_child_whose_threads_share_a_connection_keeps_it_when_its_maker_is_killed(world):
    for way in WAYS:
        server = served(world, "forked")
        client = Client(world, way)
        for _ in range(5):
            pid = client.ask()
        os.kill(server.pid, signal.SIGKILL)
        server.wait(10)
        for _ in range(20):
            assert client.ask() == pid, way
            time.sleep(0.01)
        client.end()


@test
def busy_threads_get_every_byte_while_their_connections_move(world):
    """Many connections at a time, each asked as fast as it answers."""
    served(world, "forked")
    wrong = []

    def ask(way):
        try:
            client = Client(world, way)
            for _ in range(400):
                client.ask()
            client.end()
        except (AssertionError, OSError) as failure:
            wrong.append((way, client.count, repr(failure)))

    for _ in range(3):
        asking = [threading.Thread(target=ask, args=(way,)) for way in (*WAYS, "whole 900")]
        for thread in asking:
            thread.start()
        for thread in asking:
            thread.join()
    assert not wrong, wrong


@test
def a_read_of_all_bytes_with_a_timeout_goes_on_when_its_connection_moves(world):
    served(world, "forked")
    client = Client(world, "whole 8000")
    pid = client.ask()
    client.sock.sendall(b"in two ")
    if world.mode != "kernel":
        until(lambda: client.is_held_by(pid), 5, "the connection is the reader's")
    client.sock.sendall(b"parts   \n")
    client.answer_to(b"in two parts   \n")
    client.end()


@test
def a_read_of_all_bytes_ends_in_time_when_its_connection_moves(world):
    served(world, "forked")
    for pause in (0.1, 0.3, 0.6):
        client = Client(world, "whole 900")
        client.ask()
        time.sleep(pause)
        client.ask()
        client.sock.sendall(b"one part")
        begun = time.monotonic()
        client.answer_to(b"one part--------")
        waited = time.monotonic() - begun
        assert 0.3 < waited < 1.3, f"{waited:.2f} s"
        client.end()

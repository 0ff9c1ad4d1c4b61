"""Connections that unrelated programs send each other (SCM_RIGHTS)."""

import contextlib
import hashlib
import os
import shutil
import signal
import socket
import threading

from harness import Skip, test
from harness.process import until

PORT = 7230


class Pair:
    """A server and a worker that do not descend from each other."""

    def __init__(self, world, case, before=()):
        self.world = world
        path = world.folder / "way"
        script = world.program("handing.py")
        self.server = world.stack(*script, "server", PORT, path, case)
        until(path.exists, 10, "the server's unix socket")
        words = [*script, "worker", path, case]
        start = world.beside if before == "kernel" else world.stack
        self.worker = start(*words)
        if case != "datagrams":
            until(lambda: "ready" in self.server.output(), 20, "the server accepts")

    def pids(self):
        return {self.server.pid: "server", self.worker.pid: "worker"}

    def ask(self, sock, line):
        """Sends a line and returns the answering process."""
        sock.sendall(line)
        return self.answerer(sock, line)

    def answerer(self, sock, line):
        got = b""
        while not got.endswith(b"\n"):
            byte = sock.recv(1)
            assert byte, f"the end after {got!r}\n{self.server.tail()}\n{self.worker.tail()}"
            got += byte
        pid, said = got.split(b" ", 1)
        assert said == line, (said, line)
        return self.pids().get(int(pid), "other")


def exchange(pair, sock, count=40, by="worker"):
    for number in range(count):
        assert pair.ask(sock, b"line %d\n" % number) == by


def is_ended(sock):
    sock.shutdown(socket.SHUT_WR)
    assert sock.recv(1) == b""


@test
def a_connection_goes_to_the_program_that_it_is_sent_to(world):
    pair = Pair(world, "closed")
    for _ in range(6):
        with world.connect(PORT) as sock:
            exchange(pair, sock, 3)
            is_ended(sock)
    with world.connect(PORT) as sock:
        exchange(pair, sock)
        # It is the worker's alone now.
        os.kill(pair.server.pid, signal.SIGKILL)
        pair.server.wait(10)
        exchange(pair, sock)
        is_ended(sock)


@test
def a_connection_goes_on_in_the_worker_when_its_sender_ends(world):
    pair = Pair(world, "ends")
    with world.connect(PORT) as sock:
        exchange(pair, sock)
        is_ended(sock)
    pair.server.wait(10)


@test
def bytes_unread_by_the_sender_go_to_the_receiver(world):
    pair = Pair(world, "read")
    with world.connect(PORT) as sock:
        lines = [b"number %d\n" % number for number in range(5)]
        sock.sendall(b"".join(lines))
        sock.shutdown(socket.SHUT_WR)
        assert pair.answerer(sock, lines[0]) == "server"
        for line in lines[1:]:
            assert pair.answerer(sock, line) == "worker"
        assert sock.recv(1) == b""


@test
def two_programs_use_one_connection(world):
    pair = Pair(world, "both")
    with world.connect(PORT) as sock:
        assert pair.ask(sock, b"first\n") == "server"
        for number in range(20):
            assert pair.ask(sock, b"worker's %d\n" % number) == "worker"
            assert pair.ask(sock, b"server's %d\n" % number) == "server"


@test
def a_receiver_that_does_not_use_its_copy_changes_nothing(world):
    pair = Pair(world, "kept")
    with world.connect(PORT) as sock:
        exchange(pair, sock, 40, by="server")
        sock.shutdown(socket.SHUT_WR)


@test
def a_connection_sent_in_a_circle_is_served_by_every_program(world):
    pair = Pair(world, "circle")
    for _ in range(3):
        with world.connect(PORT) as sock:
            assert pair.ask(sock, b"there\n") == "worker"
            assert pair.ask(sock, b"back\n") == "server"
            exchange(pair, sock)
            is_ended(sock)


@test
def a_connection_sent_twice_is_one_connection(world):
    pair = Pair(world, "again")
    for _ in range(5):
        with world.connect(PORT) as sock:
            exchange(pair, sock)
            is_ended(sock)


@test
def a_connection_that_is_sent_on_is_served_there(world):
    pair = Pair(world, "passed")
    with world.connect(PORT) as sock:
        assert pair.ask(sock, b"first\n") == "worker"
        exchange(pair, sock, by="other")
        is_ended(sock)


@test
def a_receiver_without_the_library_serves_a_connection(world):
    pair = Pair(world, "closed", "kernel")
    with world.connect(PORT) as sock:
        exchange(pair, sock)
        is_ended(sock)


@test
def a_long_stream_arrives_whole_in_the_receiver(world):
    pair = Pair(world, "much")
    line = hashlib.shake_256(b"much").hexdigest(100_000).encode() + b"\n"
    for _ in range(5):
        with world.connect(PORT) as sock:
            sender = threading.Thread(target=sock.sendall, args=(line,))
            sender.start()
            with sock.makefile("rb") as lines:
                pid, said = lines.readline().split(b" ", 1)
            sender.join()
            assert (said, int(pid)) == (line, pair.worker.pid), len(said)
            is_ended(sock)


@test
def a_datagram_socket_goes_to_the_program_that_it_is_sent_to(world):
    pair = Pair(world, "datagrams")
    with world.at_peer():
        sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with sock:
        sock.settimeout(0.3)
        sock.connect((world.address, PORT))

        def is_answered(by):
            sock.send(b"question")
            try:
                pid, said = sock.recv(100).split(b" ")
            except (socket.timeout, ConnectionRefusedError):
                return False
            return said == b"question" and pair.pids()[int(pid)] == by

        until(lambda: is_answered("worker"), 10, "an answer")
        for _ in range(20):
            assert is_answered("worker")


CLUSTER = """
const cluster = require('cluster'), net = require('net');
if (cluster.isPrimary) {
  for (let i = 0; i < 2; i++) cluster.fork();
  cluster.on('listening', () => console.log('a worker listens'));
} else {
  net.createServer((sock) => sock.on('data', (data) => sock.write(process.pid + ' ' + data)))
    .listen(+process.argv[2], '0.0.0.0');
}
"""


@test
def workers_of_nodes_cluster_own_the_connections_they_get(world):
    if shutil.which("node") is None:
        raise Skip("node is not installed")
    script = world.folder / "cluster.js"
    script.write_text(CLUSTER)
    started = world.stack("node", script, PORT)
    until(lambda: started.output().count("listens") == 2, 20, "both workers listen")
    with contextlib.ExitStack() as stack:
        socks = [stack.enter_context(world.connect(PORT)) for _ in range(16)]
        workers = set()

        def ask_each():
            for sock in socks:
                sock.sendall(b"question\n")
                said = sock.recv(100).split()
                assert said[1] == b"question", said
                workers.add(said[0].decode())

        for _ in range(20):
            ask_each()
        assert len(workers) == 2 and str(started.pid) not in workers, workers
        if world.mode != "kernel":

            def are_held():
                ask_each()
                rows = [line.split() for line in world.admin("status").output().splitlines()]
                # An instance's own rows have no number.
                held = [row[0] for row in rows if row[2:4] == ["tcp", "stack"] and row[1] != "–"]
                return set(held) == workers and len(held) == 16

            until(are_held, 5, "each worker's connections are its own")


@test
def a_connection_whose_receiver_is_killed_on_the_way_ends(world):
    """After a few answers it moves to the receiver."""
    for lines in (0, 4):
        pair = Pair(world, "closed")
        with world.connect(PORT) as sock:
            exchange(pair, sock, lines)
            sock.sendall(b"last\n")
            os.kill(pair.worker.pid, signal.SIGKILL)
            sock.settimeout(5)
            # An answer, if it had got so far, and the end.
            with contextlib.suppress(ConnectionResetError):
                while sock.recv(100):
                    pass
        pair.server.kill()
        (world.folder / "way").unlink()

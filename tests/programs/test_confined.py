"""Programs that confine themselves (seccomp, limits) while they have a connection."""

import signal
import socket
import subprocess

from harness import test
from harness.process import until
from harness.world import PROGRAMS

FIRST, MUCH = 20, 1 << 20


def built(world, name="confines_late"):
    program = world.folder / name
    subprocess.run(["gcc", "-Wall", "-o", program, PROGRAMS / f"{name}.c"], check=True)
    return program


def connected(world, port):
    """To a server that has begun to listen and may not have got to accept."""
    made = []

    def has_connected():
        try:
            made.append(world.connect(port, 5))
        except ConnectionRefusedError:
            return False
        return True

    until(has_connected, 5, f"port {port} accepts")
    return made[0]


def use(sock, last):
    """More than a child answers before a connection goes to it, and before it confines itself."""
    with sock, sock.makefile("rb") as back:
        for number in range(2 * FIRST):
            line = b"question %d\n" % number
            sock.sendall(line)
            assert back.readline() == line
        sock.sendall(bytes(range(67, 256)) * 300)
        assert back.read(189 * 300) == bytes(range(67, 256)) * 300
        if last:
            sock.sendall(b"B")
            assert back.read() == b"m" * MUCH


@test
def a_child_confines_itself_after_its_connection_has_come_to_it(world):
    program = built(world)
    for port, how in enumerate(("prctl", "tsync", "epoll", "limit"), 7110):
        server = world.stack(program, port, how)
        world.wait_port(port, process=server)
        for last in (False, True):
            use(world.connect(port), last)
        until(
            lambda: server.output().count("status 0") >= 3,
            5,
            f"{how}: the children end well\n{server.tail()}",
        )
        assert "signal" not in server.output() and "another" not in server.output(), server.output()


@test
def a_program_confines_itself_with_a_connection_of_its_own(world):
    program = built(world)
    for port, last in ((7120, False), (7121, True)):
        server = world.stack(program, port, "alone")
        until(lambda: "listening" in server.output(), 5, "it listens")
        until(
            lambda: world.mode == "kernel" or "is reached at" in server.errors(),
            5,
            "the stack is up",
        )
        use(connected(world, port), last)
        server.finish(5)


@test
def a_program_whose_filter_ends_its_only_thread_ends(world):
    server = world.stack(built(world), 7122, "thread")
    until(lambda: "listening" in server.output(), 5, "it listens")
    with connected(world, 7122) as sock, sock.makefile("rb") as back:
        for number in range(FIRST):
            sock.sendall(b"question %d\n" % number)
            assert back.readline() == b"question %d\n" % number
        assert server.wait(5) == -signal.SIGSYS
        assert back.read() == b""


BOTH = """
import select, socket, sys
address = (sys.argv[1], int(sys.argv[2]))
server = socket.create_server(address)
datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
datagrams.bind(address)
socks = [server, datagrams]
while True:
    for sock in select.select(socks, [], [])[0]:
        if sock is server:
            socks.append(server.accept()[0])
        elif sock is datagrams:
            data, peer = sock.recvfrom(65536)
            sock.sendto(data, peer)
        elif data := sock.recv(65536):
            sock.sendall(data)
        else:
            socks.remove(sock)
            sock.close()
"""


@test
def a_server_of_streams_and_datagrams_runs_in_a_service_managers_sandbox(world):
    port = 7130
    words = ("/usr/bin/python3", "-c", BOTH, world.address, port)
    server = world.stack(built(world, "sandboxed"), *words)
    world.wait_port(port, process=server)
    with world.at_peer():
        datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with datagrams:
        datagrams.settimeout(10)
        datagrams.connect((world.address, port))
        for number in range(3):
            use(world.connect(port), False)
            question = b"question %d" % number
            datagrams.send(question)
            assert datagrams.recv(100) == question
    assert server.is_running(), server.tail()


@test
def a_server_confines_itself_between_bind_and_its_first_wait(world):
    """It ends as its own signals say."""
    program = built(world, "confines_early")
    kinds = [("prctl", "handler", 0), ("tsync", "once", 0), ("prctl", "default", -signal.SIGTERM)]
    for port, (how, end, status) in enumerate(kinds, 7140):
        server = world.stack(program, port, how, end)
        until(lambda: "listening" in server.output(), 10, f"{how}: it listens\n{server.tail()}")
        with world.at_peer():
            datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        with datagrams:
            datagrams.settimeout(10)
            datagrams.connect((world.address, port))
            for number in range(3):
                use(connected(world, port), False)
                question = b"question %d" % number
                datagrams.send(question)
                assert datagrams.recv(100) == question
        with connected(world, port) as sock:
            sock.sendall(b"question")
            assert sock.recv(100) == b"question"
            server.signal(signal.SIGTERM)
            assert server.wait(5) == status, f"{how}, {end}: {server.tail()}"
            assert sock.recv(100) == b""

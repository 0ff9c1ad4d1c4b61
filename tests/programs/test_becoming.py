"""Connections that are kept open while their process becomes another program."""

from harness import test
from harness.process import until
from test_confined import connected

TURNS = 20


def turns(sock, stream, count):
    for number in range(count):
        line = f"turn {number}\n".encode()
        sock.sendall(line)
        assert stream.readline() == line


@test
def a_connection_is_kept_while_its_process_becomes_another_program(world):
    for port, how in enumerate(("itself", "cat", "child", "againagain"), 7140):
        server = world.stack(*world.program("becomes.py"), port, how)
        until(lambda: "listening" in server.output(), 5, "it listens")
        until(lambda: world.mode == "kernel" or "is reached at" in server.errors(), 5, "the stack is up")
        with connected(world, port) as sock, sock.makefile("rb") as stream:
            turns(sock, stream, 5 * TURNS)
            much = b"m" * 100_000 + b"\n"
            sock.sendall(much)
            assert stream.readline() == much
            sock.shutdown(1)
            assert stream.read() == b""
        server.finish(10)
        assert how != "child" or "child 0" in server.output(), server.tail()

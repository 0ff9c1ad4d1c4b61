"""Connections that are kept open while their process becomes another program."""

from harness import test
from harness.process import until
from harness.world import PYTHON
from test_confined import connected

TURNS = 20


def turns(sock, stream, count):
    for number in range(count):
        line = f"turn {number}\n".encode()
        sock.sendall(line)
        assert stream.readline() == line


RESETS = """
import os, socket, struct, sys, time
with socket.create_server(("0.0.0.0", int(sys.argv[1]))) as server:
    print("listening", flush=True)
    for is_used in range(2):
        sock, _ = server.accept()
        if os.fork() == 0:
            if is_used:
                sock.sendall(sock.recv(100))
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            if is_used:
                linger = sock.getsockopt(socket.SOL_SOCKET, socket.SO_LINGER, 8)
                assert linger == struct.pack("ii", 1, 0)
            else:
                # The peer has to see its connection made first.
                time.sleep(0.3)
            sock.close()
            os._exit(0)
        sock.close()
        assert os.wait()[1] == 0
"""


@test
def an_option_that_a_child_sets_has_its_effect_on_its_parents_connection(world):
    """SO_LINGER with no time: the last close resets."""
    server = world.stack(PYTHON, "-c", RESETS, 7150)
    until(lambda: "listening" in server.output(), 5, "it listens")
    until(
        lambda: world.mode == "kernel" or "is reached at" in server.errors(), 5, "the stack is up"
    )
    for is_used in range(2):
        with connected(world, 7150) as sock:
            if is_used:
                sock.sendall(b"question")
                assert sock.recv(100) == b"question"
            try:
                assert not sock.recv(100), "data"
                raise AssertionError("its end, not a reset")
            except ConnectionResetError:
                pass
    server.finish(5)


@test
def a_connection_is_kept_while_its_process_becomes_another_program(world):
    for port, how in enumerate(("itself", "cat", "child", "againagain"), 7140):
        server = world.stack(*world.program("becomes.py"), port, how)
        until(lambda: "listening" in server.output(), 5, "it listens")
        until(
            lambda: world.mode == "kernel" or "is reached at" in server.errors(),
            5,
            "the stack is up",
        )
        with connected(world, port) as sock, sock.makefile("rb") as stream:
            turns(sock, stream, 5 * TURNS)
            much = b"m" * 100_000 + b"\n"
            sock.sendall(much)
            assert stream.readline() == much
            sock.shutdown(1)
            assert stream.read() == b""
        server.finish(10)
        assert how != "child" or "child 0" in server.output(), server.tail()

"""Two processes close one connection at the same moment: its peer sees the end once, whichever is
the last, and never a reset."""

import os
import socket
import subprocess

from harness import test
from harness.process import until
from harness.world import PROGRAMS

PORT = 7261
ROUNDS = 1000


def numbers(server):
    return len(os.listdir(f"/proc/{server.pid}/fd"))


def close(world, how):
    with world.connect(PORT, 10) as sock:
        sock.sendall(how)
        assert sock.recv(10) == how
        # An end stays one: a reset behind it would be ECONNRESET here.
        assert sock.recv(10) == b"" and sock.recv(10) == b""
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0


def close_often(world, how):
    program = world.folder / "shared_close"
    subprocess.run(["gcc", "-O1", "-Wall", "-o", program, PROGRAMS / "shared_close.c"], check=True)
    server = world.stack(program, PORT)
    world.wait_port(PORT, process=server)
    for _ in range(20):
        close(world, how)
    before = numbers(server)
    for _ in range(ROUNDS):
        close(world, how)
    assert server.is_running(), server.tail()
    until(lambda: numbers(server) <= before, 5, f"{before} descriptors again")


@test(timeout=120)
def parent_and_child_close_a_connection_at_one_moment(world):
    close_often(world, b"f")


@test(timeout=120)
def sender_and_receiver_of_a_connection_close_it_at_one_moment(world):
    close_often(world, b"m")

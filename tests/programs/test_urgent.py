"""Urgent data that arrives before its connection is accepted."""

import socket
import time

from harness import test
from harness.process import until
from harness.world import PYTHON

PORT = 7000

SERVER = """
import os, select, signal, socket, sys
family, how = int(sys.argv[1]), sys.argv[2]
listener = socket.socket(socket.AF_INET6 if family == 6 else socket.AF_INET)
listener.bind(("", 7000))
listener.listen()
go, begin = os.pipe()

def worker():
    print("listens", flush=True)
    select.select([listener], [], [])
    os.read(go, 1)
    if how == "closed":
        listener.close()
    else:
        signal.pause()
    os._exit(0)

if how == "first":
    print("listens", flush=True)
else:
    pid = os.fork() or worker()
sys.stdin.readline()
if how == "killed":
    os.kill(pid, signal.SIGKILL)
elif how == "closed":
    os.write(begin, b"x")
if how != "first":
    os.waitpid(pid, 0)
sock, _ = listener.accept()
print(sock.recv(100), sock.recv(1, socket.MSG_OOB), sock.recv(100), flush=True)
"""


def read(world, how, family=4):
    """A server accepts a connection on which urgent data has arrived: what it reads before the
    mark, there, and behind it."""
    if family == 6:
        world.use_ipv6()
    server = world.stack(PYTHON, "-c", SERVER, family, how, stdin=-1)
    until(lambda: "listens" in server.output(), 10, "the server listens")
    address = world.STACK6 if family == 6 else world.address
    with world.connect(PORT, address=address) as sock:
        sock.sendall(b"ab")
        sock.send(b"X", socket.MSG_OOB)
        sock.sendall(b"cd")
        time.sleep(0.3)
        server.child.stdin.write(b"\n")
        server.child.stdin.flush()
        until(lambda: len(server.output().split("\n")) > 2, 10, "the server reads")
    return server.output().split("\n")[1]


WANT = "b'ab' b'X' b'cd'"


@test
def urgent_data_before_the_first_wait_is_not_forgotten(world):
    assert read(world, "first") == WANT


@test
def urgent_data_before_the_first_wait_is_not_forgotten_over_ipv6(world):
    assert read(world, "first", 6) == WANT


@test
def urgent_data_of_a_connection_that_its_worker_left_is_not_forgotten(world):
    assert read(world, "closed") == WANT


@test
def urgent_data_of_a_connection_whose_worker_was_killed_is_not_forgotten(world):
    assert read(world, "killed") == WANT

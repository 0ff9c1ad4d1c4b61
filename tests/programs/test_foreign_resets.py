"""A peer's reset of a connection that a program without the library, or a child, has inherited."""

import fcntl
import socket
import struct
import subprocess
import termios
import time

from harness import test
from harness.process import until
from harness.world import PROGRAMS, PYTHON

PORT = 7000
MANY = 400_000

SERVER = """
import socket, subprocess, sys
family, words = int(sys.argv[1]), sys.argv[2:]
listener = socket.socket(socket.AF_INET6 if family == 6 else socket.AF_INET)
listener.bind(("", 7000))
listener.listen()
print("listens", flush=True)
conn, _ = listener.accept()
print("has it", flush=True)
child = subprocess.Popen(words, stdin=conn)
conn.close()
child.wait()
"""


def seen(world, *words, family=4, resets=True):
    """Returns the lines of a static program whose peer has sent a question and ends."""
    program = world.folder / "reads_on"
    source = PROGRAMS / "reads_on.c"
    subprocess.run(["gcc", "-static", "-Wall", "-o", program, source], check=True)
    if family == 6:
        world.use_ipv6()
    server = world.stack(PYTHON, "-c", SERVER, family, program, *words)
    until(lambda: "listens" in server.output(), 10, "the server listens")
    address = world.STACK6 if family == 6 else world.address
    with world.connect(PORT, address=address) as sock:
        sock.sendall(b"question")
        until(lambda: "has it" in server.output(), 10, "it is accepted")
        if not words:
            until(lambda: "question" in server.output(), 10, "the question is read")
        if resets:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    assert server.wait(10) == 0
    return server.output().split("\n")[2:-1]


RESET = "Connection reset by peer"


@test
def a_program_without_the_library_reads_that_its_peer_has_reset_the_connection(world):
    assert seen(world) == ["question", RESET, "end"]


@test
def a_program_without_the_library_reads_of_a_reset_over_ipv6(world):
    assert seen(world, family=6) == ["question", RESET, "end"]


@test
def a_program_without_the_library_waits_for_a_reset(world):
    lines = seen(world, "polls")
    assert lines[0] == f"ERR HUP RDHUP {RESET}", lines
    assert lines[-1] == "end", lines


@test
def a_program_without_the_library_reads_an_end_that_is_no_reset(world):
    assert seen(world, resets=False) == ["question", "end"]


@test
def a_child_reads_slowly_to_the_end_and_then_learns_of_a_reset(world):
    """Its pair is full when the reset comes."""
    server = world.stack(PYTHON, PROGRAMS / "reads_slowly.py", PORT)
    until(lambda: "listening" in server.output(), 10, "the server listens")
    with world.connect(PORT) as sock:
        sock.sendall(bytes(MANY))
        until(lambda: unsent(sock) == 0, 20, "all has been received")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    until(lambda: " " in server.output(), 20, f"the child has read all\n{server.tail()}")
    assert f"{MANY} reset" in server.output(), server.tail()


@test
def nothing_is_left_of_reset_connections_that_a_child_lets_go(world):
    """Neither where it closes them nor where it puts other files under their numbers."""
    cue = world.folder / "cue"
    server = world.stack(PYTHON, PROGRAMS / "reset_pairs.py", PORT, 20, cue)
    until(lambda: "listening" in server.output(), 10, "the server listens")
    socks = [world.connect(PORT) for _ in range(20)]
    for sock in socks:
        sock.sendall(b"x")
    until(lambda: "all read" in server.output(), 10, f"all is read\n{server.tail()}")
    for sock in socks:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        sock.close()
    time.sleep(0.2)
    cue.touch()
    until(lambda: "more" in server.output(), 10, f"the child has let go\n{server.tail()}")
    more = int(server.output().split("more")[1])
    # The way to the child, and what an engine has.
    assert more <= 4, f"{more} sockets more than before"


def unsent(sock):
    return struct.unpack("i", fcntl.ioctl(sock, termios.TIOCOUTQ, bytes(4)))[0]

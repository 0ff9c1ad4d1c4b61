"""Processes that write to one connection in turn: in_turn.py ADDRESS PORT.

Its first line says how. `ended`: a child writes and ends, then its parent writes; `told`: a child
says by a pipe that it has written; `siblings`: two children, of which the second one begins when
the first one has ended; `programs`: two programs, and their parent; `file`: as `ended`, the parent
by sendfile; `shut`: a child writes much and ends, and its parent shuts the direction down; `much`:
a child writes more than there is room for and ends, then its parent writes; `polled`: as `much`,
without waiting in the call."""

import os
import select
import socket
import subprocess
import sys
import tempfile

ROUNDS = 60
MUCH = 3_000_000


def in_child(act):
    child = os.fork()
    if child == 0:
        try:
            act()
        finally:
            os._exit(0)
    return child


def ended(sock, write=socket.socket.sendall):
    for turn in range(ROUNDS):
        os.waitpid(in_child(lambda: sock.sendall(b"c%d " % turn)), 0)  # noqa: B023
        write(sock, b"p%d " % turn)


def told(sock):
    ours, theirs = socket.socketpair()

    def act():
        for turn in range(ROUNDS):
            sock.sendall(b"c%d " % turn)
            theirs.sendall(b"x")
            theirs.recv(1)

    child = in_child(act)
    for turn in range(ROUNDS):
        ours.recv(1)
        sock.sendall(b"p%d " % turn)
        ours.sendall(b"x")
    os.waitpid(child, 0)


def siblings(sock):
    for turn in range(ROUNDS):
        for who in (b"c", b"p"):
            os.waitpid(in_child(lambda: sock.sendall(who + b"%d " % turn)), 0)  # noqa: B023


def programs(sock):
    for turn in range(ROUNDS // 2):
        for word in (f"c{2 * turn} ", f"p{2 * turn} "):
            subprocess.run(["printf", word], stdout=sock, check=True)
        subprocess.run(["printf", f"c{2 * turn + 1} "], stdout=sock, check=True)
        sock.sendall(b"p%d " % (2 * turn + 1))


def by_file(sock, data):
    with tempfile.TemporaryFile() as file:
        file.write(data)
        file.flush()
        while os.sendfile(sock.fileno(), file.fileno(), 0, len(data)) == 0:
            pass


def much(sock):
    os.waitpid(in_child(lambda: sock.sendall(b"c" * MUCH)), 0)


def polled(sock):
    much(sock)
    sock.setblocking(False)
    poll = select.poll()
    poll.register(sock, select.POLLOUT)
    while True:
        try:
            sock.send(b"end")
            return
        except BlockingIOError:
            assert poll.poll(20_000)


def serve(sock):
    line = b""
    while not line.endswith(b"\n"):
        byte = sock.recv(1)
        if not byte:
            return
        line += byte
    match line.strip().decode():
        case "ended":
            ended(sock)
        case "told":
            told(sock)
        case "siblings":
            siblings(sock)
        case "programs":
            programs(sock)
        case "file":
            ended(sock, by_file)
        case "shut":
            os.waitpid(in_child(lambda: sock.sendall(b"c" * 150_000)), 0)
            sock.shutdown(socket.SHUT_WR)
            sock.recv(1)
        case "much":
            much(sock)
            sock.sendall(b"end")
        case "polled":
            polled(sock)


def main(address, port):
    with socket.create_server((address, int(port))) as server:
        while True:
            sock, _ = server.accept()
            with sock:
                serve(sock)


main(*sys.argv[1:])

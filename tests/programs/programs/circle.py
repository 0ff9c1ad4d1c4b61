"""Connections that go round several processes: circle.py PORT PROCESSES TURNS.

The process that has a connection answers one line with its place and sends the connection on; the
last one closes it."""

import ctypes
import os
import signal
import socket
import sys

PORT, PROCESSES, TURNS = map(int, sys.argv[1:])
PR_SET_PDEATHSIG = 1


def give(link, sock, turn):
    socket.send_fds(link, [b"%5d" % turn], [sock.fileno()])
    sock.close()


def work(place, mine, onward):
    while True:
        data, numbers, _, _ = socket.recv_fds(mine, 5, 1)
        turn = int(data)
        with socket.socket(fileno=numbers[0]) as sock:
            line = sock.recv(100)
            if not line:
                continue
            sock.sendall(b"%d " % place + line)
            if turn < TURNS:
                give(onward, sock, turn + 1)


links = [socket.socketpair() for _ in range(PROCESSES)]
for place in range(PROCESSES):
    if os.fork() == 0:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        work(place, links[place][1], links[(place + 1) % PROCESSES][0])
with socket.create_server(("0.0.0.0", PORT)) as server:
    while True:
        give(links[0][0], server.accept()[0], 1)

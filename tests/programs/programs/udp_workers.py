"""Processes that answer datagrams with their number and the datagram: udp_workers.py HOW PORT.

HOW: `shared`: two have one socket from their parent, which has not used it; `slow`: three of them,
each of which sleeps for a while before it answers; `parent`: two, and their parent, which begins
after them; `own`: two, each of which uses another one of its parent's (SO_REUSEPORT)."""

import os
import signal
import socket
import sys
import time

WORKERS = 2
# Longer than a worker may take until others are preferred.
SLOW_SECONDS = 0.01


def bound(port, *options):
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    for option in options:
        sock.setsockopt(socket.SOL_SOCKET, option, 1)
    sock.bind(("0.0.0.0", int(port)))
    return sock


def answers(sock, seconds):
    own = b"%d " % os.getpid()
    while True:
        data, sender = sock.recvfrom(2000)
        time.sleep(seconds)
        sock.sendto(own + data, sender)


def main(how, port):
    seconds = SLOW_SECONDS if how == "slow" else 0
    if how == "own":
        socks = [bound(port, socket.SO_REUSEPORT) for _ in range(WORKERS)]
    else:
        socks = [bound(port)] * (WORKERS + (how == "slow"))
    workers = []
    for sock in socks:
        pid = os.fork()
        if pid == 0:
            answers(sock, seconds)
        workers.append(pid)

    def end(*_):
        for pid in workers:
            os.kill(pid, signal.SIGKILL)
        os._exit(0)

    signal.signal(signal.SIGTERM, end)
    if how == "parent":
        time.sleep(0.5)
        print("workers", *workers, os.getpid(), flush=True)
        answers(socks[0], seconds)
    print("workers", *workers, flush=True)
    while True:
        signal.pause()


main(*sys.argv[1:])

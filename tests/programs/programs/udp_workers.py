"""Two processes that answer datagrams with their number and the datagram. Usage: udp_workers.py HOW
PORT

HOW: `shared`: they have one socket from their parent, which has not used it; `own`: each uses
another one of its parent's (SO_REUSEPORT)."""

import os
import signal
import socket
import sys

WORKERS = 2


def bound(port, *options):
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    for option in options:
        sock.setsockopt(socket.SOL_SOCKET, option, 1)
    sock.bind(("0.0.0.0", int(port)))
    return sock


def answers(sock):
    own = b"%d " % os.getpid()
    while True:
        data, sender = sock.recvfrom(2000)
        sock.sendto(own + data, sender)


def main(how, port):
    if how == "shared":
        socks = [bound(port)] * WORKERS
    else:
        socks = [bound(port, socket.SO_REUSEPORT) for _ in range(WORKERS)]
    workers = []
    for sock in socks:
        pid = os.fork()
        if pid == 0:
            answers(sock)
        workers.append(pid)

    def end(*_):
        for pid in workers:
            os.kill(pid, signal.SIGKILL)
        os._exit(0)

    signal.signal(signal.SIGTERM, end)
    print("workers", *workers, flush=True)
    while True:
        signal.pause()


main(*sys.argv[1:])

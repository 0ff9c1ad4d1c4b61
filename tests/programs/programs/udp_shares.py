"""Threads that each have a share of a UDP port. Usage: udp_shares.py PORT THREADS

The first one binds and waits; the others bind 0.2 s later and wait 0.3 s after that. A datagram is
answered with the number of the thread."""

import select
import socket
import sys
import threading
import time


def bound(port):
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    sock.bind(("0.0.0.0", port))
    sock.setblocking(False)
    return sock


def work(number, port, waits):
    sock = bound(port)
    time.sleep(waits)
    poll = select.epoll()
    poll.register(sock, select.EPOLLIN)
    print("waits", flush=True)
    while True:
        poll.poll()
        try:
            text, sender = sock.recvfrom(2000)
        except BlockingIOError:
            continue
        sock.sendto(b"%d " % number + text, sender)


if __name__ == "__main__":
    port, threads = map(int, sys.argv[1:])
    for number in range(1, threads):
        threading.Timer(0.2, work, args=(number, port, 0.3)).start()
    work(0, port, 0)

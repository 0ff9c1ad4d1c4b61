"""Peeks at a datagram and forks; the child connects to its sender and receives it, as `socat
UDP-LISTEN:…,fork` does. Usage: peeking.py PORT"""

import os
import select
import signal
import socket
import sys

signal.signal(signal.SIGCHLD, signal.SIG_IGN)
server = os.getpid()


def serve(sock, peer):
    sock.connect(peer)
    sock.settimeout(0.1)
    # The datagram stays through another fork.
    if os.fork() == 0:
        os._exit(0)
    while os.getppid() == server:
        try:
            data = sock.recv(65536)
        except TimeoutError:
            continue
        sock.send(b"%d %s" % (os.getpid(), data))
    os._exit(0)


while True:
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.bind(("0.0.0.0", int(sys.argv[1])))
    select.select([sock], [], [])
    look, peer = sock.recvfrom(1, socket.MSG_PEEK)
    assert len(look) == 1, look
    if os.fork() == 0:
        serve(sock, peer)
    sock.close()

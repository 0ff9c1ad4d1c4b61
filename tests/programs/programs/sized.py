"""Says how large its segments are. Usage: sized.py PORT

A line of a TCP connection asks: `mss` for TCP_MAXSEG, `get N` for N bytes, `whole N` for a datagram
to port 7001 that is not cut, `put N` and N bytes for their digest.
A datagram `N …` is answered with its digest, and with N bytes."""

import errno
import hashlib
import socket
import sys
import threading

port = int(sys.argv[1])


def whole(peer, count):
    """Sends a datagram that may not be cut."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.setsockopt(socket.IPPROTO_IP, 10, 2)  # IP_MTU_DISCOVER, IP_PMTUDISC_DO
        sock.connect((peer, 7001))
        try:
            sock.send(b"w" * count)
            return b"sent"
        except OSError as error:
            return errno.errorcode[error.errno].encode()


def serve(sock):
    lines = sock.makefile("rwb")
    for line in lines:
        word, *number = line.split()
        if word == b"mss":
            lines.write(b"%d\n" % sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG))
        elif word == b"whole":
            lines.write(whole(sock.getpeername()[0], int(number[0])) + b"\n")
        elif word == b"get":
            lines.write(b"g" * int(number[0]))
        else:
            lines.write(hashlib.sha256(lines.read(int(number[0]))).hexdigest().encode() + b"\n")
        lines.flush()


def answer(sock):
    while True:
        data, peer = sock.recvfrom(65536)
        sock.sendto(hashlib.sha256(data).digest(), peer)
        sock.sendto(b"u" * int(data.split()[0]), peer)


udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
udp.bind(("0.0.0.0", port))
threading.Thread(target=answer, args=(udp,), daemon=True).start()
listener = socket.create_server(("0.0.0.0", port))
while True:
    accepted, _ = listener.accept()
    threading.Thread(target=serve, args=(accepted,), daemon=True).start()

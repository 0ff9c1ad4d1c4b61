"""Answers every datagram, of both families, with its length and digest."""

import hashlib
import socket
import sys

with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as server:
    server.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    server.bind(("::", int(sys.argv[1])))
    print("ready", flush=True)
    while True:
        data, peer = server.recvfrom(65536)
        server.sendto(f"{len(data)} {hashlib.sha256(data).hexdigest()}".encode(), peer)

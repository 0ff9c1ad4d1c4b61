"""Answers a datagram that requests N bytes with N bytes, in both families."""

import hashlib
import socket
import sys

with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as server:
    server.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    server.bind(("::", int(sys.argv[1])))
    print("ready", flush=True)
    while True:
        asked, peer = server.recvfrom(65536)
        length = int(asked)
        server.sendto(hashlib.shake_256(asked).digest(length), peer)

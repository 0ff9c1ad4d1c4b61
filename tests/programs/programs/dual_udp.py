"""Sends every datagram back, of both families."""

import socket
import sys

with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as server:
    server.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    server.bind(("::", int(sys.argv[1])))
    print("ready", flush=True)
    while True:
        data, peer = server.recvfrom(65536)
        server.sendto(data, peer)

"""An IPv6 router on eth1 as far as hosts ask: answers solicitations with a prefix, itself, and an MTU."""

import socket
import struct
import sys

PREFIX, MTU = sys.argv[1], int(sys.argv[2])
ROUTER_SOLICITATION, ROUTER_ADVERTISEMENT = 133, 134
ALL_ROUTERS, ALL_NODES = "ff02::2", "ff02::1"

index = socket.if_nametoindex("eth1")
prefix = socket.inet_pton(socket.AF_INET6, PREFIX)
# Autonomous and on the link, for an hour; the router for half of it.
body = struct.pack("!BBHBBHII", ROUTER_ADVERTISEMENT, 0, 0, 64, 0, 1800, 0, 0)
body += struct.pack("!BBHI", 5, 1, 0, MTU)
body += struct.pack("!BBBBIII", 3, 4, 64, 0xC0, 3600, 3600, 0) + prefix

with socket.socket(socket.AF_INET6, socket.SOCK_RAW, socket.IPPROTO_ICMPV6) as raw:
    group = socket.inet_pton(socket.AF_INET6, ALL_ROUTERS) + struct.pack("@I", index)
    raw.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_JOIN_GROUP, group)
    raw.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_HOPS, 255)
    raw.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_IF, index)
    print("ready", flush=True)
    while True:
        message = raw.recv(2048)
        if message[0] == ROUTER_SOLICITATION:
            raw.sendto(body, (ALL_NODES, 0, 0, index))

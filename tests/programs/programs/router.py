"""An IPv6 router on eth1, or the interface in ROUTER_ON, as far as hosts ask: answers solicitations
with a prefix, itself, and an MTU.

router.py PREFIX MTU
router.py FILE      advertises what the file says, when asked and whenever it changes:
{"lifetime": S, "mtu": N, "hops": N, "prefixes": [[PREFIX, VALID_S, PREFERRED_S]…],
"redirects": [[HOST, DESTINATION, TARGET]…]}
"""

import json
import os
import select
import socket
import struct
import sys
from pathlib import Path

ON = os.environ.get("ROUTER_ON", "eth1")
ROUTER_SOLICITATION, ROUTER_ADVERTISEMENT, REDIRECT = 133, 134, 137
ALL_ROUTERS, ALL_NODES = "ff02::2", "ff02::1"


def address(text):
    return socket.inet_pton(socket.AF_INET6, text)


def link_local():
    rows = [line.split() for line in Path("/proc/net/if_inet6").read_text().splitlines()]
    return next(bytes.fromhex(row[0]) for row in rows if row[5] == ON and row[3] == "20")


def advertisement(plan):
    body = struct.pack(
        "!BBHBBHII",
        ROUTER_ADVERTISEMENT,
        0,
        0,
        plan.get("hops", 64),
        0,
        plan.get("lifetime", 1800),
        0,
        0,
    )
    if "mtu" in plan:
        body += struct.pack("!BBHI", 5, 1, 0, plan["mtu"])
    for prefix, valid, preferred in plan.get("prefixes", []):
        # Autonomous and on the link.
        body += struct.pack("!BBBBIII", 3, 4, 64, 0xC0, valid, preferred, 0) + address(prefix)
    return body


def main():
    index = socket.if_nametoindex(ON)
    if len(sys.argv) == 3:
        read = lambda: {"mtu": int(sys.argv[2]), "prefixes": [[sys.argv[1], 3600, 3600]]}
    else:
        read = lambda: json.loads(Path(sys.argv[1]).read_text())
    with socket.socket(socket.AF_INET6, socket.SOCK_RAW, socket.IPPROTO_ICMPV6) as raw:
        raw.setsockopt(
            socket.IPPROTO_IPV6,
            socket.IPV6_JOIN_GROUP,
            address(ALL_ROUTERS) + struct.pack("@I", index),
        )
        for option in (socket.IPV6_MULTICAST_HOPS, socket.IPV6_UNICAST_HOPS):
            raw.setsockopt(socket.IPPROTO_IPV6, option, 255)
        raw.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_IF, index)
        plan = read()
        print("ready", flush=True)
        while True:
            readable, _, _ = select.select([raw], [], [], 0.1)
            is_asked = readable and raw.recv(2048)[0] == ROUTER_SOLICITATION
            before, plan = plan, read()
            if is_asked or plan != before:
                raw.sendto(advertisement(plan), (ALL_NODES, 0, 0, index))
            if plan != before:
                for host, destination, target in plan.get("redirects", []):
                    redirect = (
                        struct.pack("!BBHI", REDIRECT, 0, 0, 0)
                        + address(target)
                        + address(destination)
                    )
                    # RFC 4861 8.1: from the link-local address.
                    source = (
                        socket.IPPROTO_IPV6,
                        socket.IPV6_PKTINFO,
                        link_local() + struct.pack("@I", index),
                    )
                    raw.sendmsg([redirect], [source], 0, (host, 0, 0, 0))


main()

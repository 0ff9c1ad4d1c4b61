"""A false router on eth1: it advertises a prefix and itself, answers solicitations while FILE
exists, and prints the packets that it should have forwarded. silent_router.py PREFIX FILE"""

import socket
import struct
import sys
from pathlib import Path

ETH_P_IPV6, ICMPV6 = 0x86DD, 58
ROUTER_SOLICITATION, ROUTER_ADVERTISEMENT, NEIGHBOUR_SOLICITATION, NEIGHBOUR_ADVERTISEMENT = (
    133,
    134,
    135,
    136,
)
MAC = bytes.fromhex("020000000bad")
OWN = socket.inet_pton(socket.AF_INET6, "fe80::bad")
ALL_NODES, ALL_NODES_MAC = socket.inet_pton(socket.AF_INET6, "ff02::1"), bytes.fromhex(
    "333300000001"
)
LINK_ADDRESS = 1, 2


def frame(mac, to, kind, rest, body):
    message = struct.pack("!BBH", kind, 0, 0) + rest + body
    message = (
        message[:2]
        + checksum(OWN + to + struct.pack("!II", len(message), ICMPV6) + message)
        + message[4:]
    )
    return (
        mac
        + MAC
        + struct.pack("!HIHBB", ETH_P_IPV6, 6 << 28, len(message), ICMPV6, 255)
        + OWN
        + to
        + message
    )


def checksum(data):
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return struct.pack("!H", ~total & 0xFFFF)


def advertisement(prefix):
    """Neighbour entries are valid for a second, and probes are sent every 200 ms."""
    body = struct.pack("!II", 1000, 200) + struct.pack("!BB", 1, 1) + MAC
    body += struct.pack("!BBBBIII", 3, 4, 64, 0xC0, 3600, 3600, 0) + socket.inet_pton(
        socket.AF_INET6, prefix
    )
    return frame(
        ALL_NODES_MAC, ALL_NODES, ROUTER_ADVERTISEMENT, struct.pack("!BBH", 64, 0, 1800), body
    )


def main():
    prefix, alive = sys.argv[1], Path(sys.argv[2])
    wire = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_IPV6))
    wire.bind(("eth1", ETH_P_IPV6))
    # PACKET_ADD_MEMBERSHIP, PACKET_MR_PROMISC: no interface has this station's address.
    wire.setsockopt(263, 1, struct.pack("iHH8s", socket.if_nametoindex("eth1"), 1, 0, b""))
    print("ready", flush=True)
    wire.send(advertisement(prefix))
    while True:
        data, (_, _, direction, *_) = wire.recvfrom(65536)
        if direction == socket.PACKET_OUTGOING or len(data) < 62:
            continue
        source, kind = data[22:38], data[54] if data[20] == ICMPV6 else None
        if kind == ROUTER_SOLICITATION:
            wire.send(advertisement(prefix))
        elif kind == NEIGHBOUR_SOLICITATION and data[62:78] == OWN and alive.exists():
            body = OWN + struct.pack("!BB", 2, 1) + MAC
            wire.send(frame(data[6:12], source, NEIGHBOUR_ADVERTISEMENT, b"\xe0\0\0\0", body))
        elif data[:6] == MAC and kind is None:
            print("to", socket.inet_ntop(socket.AF_INET6, data[38:54]), flush=True)


main()

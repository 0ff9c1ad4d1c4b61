"""IP packets, made and read by hand."""

import socket
import struct
from dataclasses import dataclass

ICMP, TCP, UDP, ICMPV6 = 1, 6, 17, 58
FRAGMENT_HEADER = 44


@dataclass(frozen=True)
class Packet:
    """A packet that the target has sent. `offset` and `has_more` describe a fragment."""

    src: str
    dst: str
    protocol: int
    tos: int
    ttl: int
    may_be_cut: bool
    offset: int
    has_more: bool
    body: bytes
    whole: bytes

    def is_v6(self):
        return ":" in self.src


def parse(packet):
    return parse_v4(packet) if packet[0] >> 4 == 4 else parse_v6(packet)


def parse_v4(packet):
    _, tos, length, _, fragment, ttl, protocol = struct.unpack("!BBHHHBB", packet[:10])
    src, dst = socket.inet_ntoa(packet[12:16]), socket.inet_ntoa(packet[16:20])
    whole = packet[:length]
    body = whole[(packet[0] & 15) * 4 :]
    return Packet(
        src,
        dst,
        protocol,
        tos,
        ttl,
        not fragment & 0x4000,
        (fragment & 0x1FFF) * 8,
        bool(fragment & 0x2000),
        body,
        whole,
    )


def parse_v6(packet):
    first, length, protocol, ttl = struct.unpack("!IHBB", packet[:8])
    src, dst = (socket.inet_ntop(socket.AF_INET6, packet[at : at + 16]) for at in (8, 24))
    whole = packet[: 40 + length]
    body, fragment = whole[40:], 0
    if protocol == FRAGMENT_HEADER:
        protocol, fragment = body[0], struct.unpack("!H", body[2:4])[0]
        body = body[8:]
    return Packet(
        src,
        dst,
        protocol,
        first >> 20 & 0xFF,
        ttl,
        False,
        fragment & 0xFFF8,
        bool(fragment & 1),
        body,
        whole,
    )


def build(src, dst, protocol, body, tos=0, ttl=64, dont_fragment=True):
    ends = packed(src) + packed(dst)
    if ":" in src:
        return struct.pack("!IHBB", 6 << 28 | tos << 20, len(body), protocol, ttl) + ends + body
    ip = (
        struct.pack(
            "!BBHHHBBH",
            0x45,
            tos,
            20 + len(body),
            0,
            0x4000 if dont_fragment else 0,
            ttl,
            protocol,
            0,
        )
        + ends
    )
    return ip[:10] + checksum(ip) + ip[12:] + body


def fragment(src, dst, protocol, identification, piece, tos=0, ttl=64):
    """A piece of a packet: (offset, bytes, whether more of it follows)."""
    offset, body, has_more = piece
    ends = packed(src) + packed(dst)
    word = offset | has_more
    if ":" in src:
        header = struct.pack("!BBHI", protocol, 0, word, identification)
        return (
            struct.pack("!IHBB", 6 << 28 | tos << 20, 8 + len(body), FRAGMENT_HEADER, ttl)
            + ends
            + header
            + body
        )
    word = offset >> 3 | has_more << 13
    ip = (
        struct.pack(
            "!BBHHHBBH", 0x45, tos, 20 + len(body), identification & 0xFFFF, word, ttl, protocol, 0
        )
        + ends
    )
    return ip[:10] + checksum(ip) + ip[12:] + body


def packed(address):
    return socket.inet_pton(socket.AF_INET6 if ":" in address else socket.AF_INET, address)


def pseudo_header(src, dst, protocol, length):
    return packed(src) + packed(dst) + struct.pack("!IHBB", length, 0, 0, protocol)


def checksum(data):
    data += b"\0" * (len(data) % 2)
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return struct.pack("!H", ~total & 0xFFFF)

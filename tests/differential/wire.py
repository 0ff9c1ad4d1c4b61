"""The peer's end of the wire: frames made and read by hand, on a packet socket."""

import select
import socket
import struct
import time
from dataclasses import dataclass

from scripts import ACK, FIN, PEER_ISS, RST, SYN

ETH_P_ALL = 3
MAC = bytes.fromhex("020000000077")
ADDRESS = "10.77.0.77"
OPTIONS = {"mss": struct.pack("!BBH", 2, 4, 1460), "sack": b"\1\1\4\2", "wscale": b"\1\3\3\7"}


@dataclass(frozen=True)
class Seen:
    """A segment of the target, with absolute numbers."""

    port: int
    peer_port: int
    flags: int
    seq: int
    ack: int
    length: int
    window: int
    options: tuple


class Wire:
    def __init__(self, namespace, interface, target):
        with namespace.inside():
            self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
            self.socket.bind((interface, ETH_P_ALL))
        self.socket.setblocking(False)
        self.socket.setsockopt(socket.SOL_SOCKET, 33, 32 << 20)  # SO_RCVBUFFORCE
        self.target = target
        self.target_mac = b"\xff" * 6

    def learn(self, seconds):
        """Asks for the target's station address."""
        end = time.monotonic() + seconds
        while self.target_mac == b"\xff" * 6:
            assert time.monotonic() < end, "the target does not answer ARP"
            self.socket.send(arp(1, b"\xff" * 6, self.target))
            self.collect(0.1)

    def collect(self, seconds):
        """The target's segments of the next `seconds`; its ARP requests are answered."""
        seen = []
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if not select.select([self.socket], [], [], left)[0]:
                break
            try:
                while True:
                    frame, (_, _, kind, *_) = self.socket.recvfrom(70_000)
                    if kind != socket.PACKET_OUTGOING:
                        self.take(frame, seen)
            except BlockingIOError:
                pass
        return seen

    def take(self, frame, seen):
        kind = frame[12:14]
        if kind == b"\x08\x06" and frame[28:32] == socket.inet_aton(self.target):
            self.target_mac = frame[22:28]
            if frame[20:22] == b"\0\1" and frame[38:42] == socket.inet_aton(ADDRESS):
                self.socket.send(arp(2, self.target_mac, self.target))
        elif kind == b"\x08\0" and frame[23] == 6 and frame[26:30] == socket.inet_aton(self.target):
            seen.append(parsed(frame[14:]))

    def send(self, segment, port, peer_port, target_iss):
        self.socket.send(self.frame(segment, port, peer_port, target_iss))

    def frame(self, segment, port, peer_port, target_iss):
        options = b"".join(OPTIONS[name] for name in segment.options)
        ack = (target_iss + segment.ack) % 2**32 if segment.flags & ACK else 0
        seq = (PEER_ISS + segment.seq) % 2**32
        offset = (20 + len(options)) // 4
        tcp = struct.pack("!HHIIBBHHH", peer_port, port, seq, ack, offset << 4, segment.flags, segment.window, 0, 0) + options + b"y" * segment.length
        ends = socket.inet_aton(ADDRESS) + socket.inet_aton(self.target)
        tcp = tcp[:16] + checksum(ends + struct.pack("!HH", 6, len(tcp)) + tcp) + tcp[18:]
        ip = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(tcp), 0, 0x4000, 64, 6, 0) + ends
        ip = ip[:10] + checksum(ip) + ip[12:]
        return self.target_mac + MAC + b"\x08\0" + ip + tcp


def arp(operation, mac, target):
    body = struct.pack("!HHBBH", 1, 0x0800, 6, 4, operation) + MAC + socket.inet_aton(ADDRESS) + mac + socket.inet_aton(target)
    return (mac if operation == 2 else b"\xff" * 6) + MAC + b"\x08\x06" + body


def parsed(packet):
    ihl = (packet[0] & 15) * 4
    tcp = packet[ihl:struct.unpack("!H", packet[2:4])[0]]
    port, peer_port, seq, ack, offset, flags, window = struct.unpack("!HHIIBBH", tcp[:16])
    offset = (offset >> 4) * 4
    return Seen(port, peer_port, flags & (FIN | SYN | RST | ACK), seq, ack, len(tcp) - offset, window, kinds(tcp[20:offset]))


def kinds(options):
    found, at = [], 0
    while at < len(options) and options[at] != 0:
        if options[at] == 1:
            at += 1
            continue
        found.append(options[at])
        at += max(options[at + 1], 2) if at + 1 < len(options) else 2
    return tuple(sorted(found))


def checksum(data):
    data += b"\0" * (len(data) % 2)
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return struct.pack("!H", ~total & 0xFFFF)

"""The peer's end of the wire: a packet socket that answers ARP for one address."""

import select
import socket
import struct
import time

from packets import parse

ETH_P_ALL = 3
MAC = bytes.fromhex("020000000077")
ADDRESS = "10.77.0.77"
ARP, IPV4, IPV6 = b"\x08\x06", b"\x08\0", b"\x86\xdd"


class Wire:
    """`target` are the target's addresses, the first one of IPv4."""

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
            self.socket.send(arp(1, b"\xff" * 6, self.target[0]))
            self.collect(0.1)

    def collect(self, seconds):
        """The target's packets of the next `seconds`; its ARP requests are answered."""
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
        if kind == ARP and frame[28:32] == socket.inet_aton(self.target[0]):
            self.target_mac = frame[22:28]
            if frame[20:22] == b"\0\1" and frame[38:42] == socket.inet_aton(ADDRESS):
                self.socket.send(arp(2, self.target_mac, self.target[0]))
        elif kind in (IPV4, IPV6):
            packet = parse(frame[14:])
            if packet.src in self.target:
                seen.append(packet)

    def send(self, packet):
        self.socket.send(self.target_mac + MAC + (IPV4 if packet[0] >> 4 == 4 else IPV6) + packet)


def arp(operation, mac, target):
    body = (
        struct.pack("!HHBBH", 1, 0x0800, 6, 4, operation)
        + MAC
        + socket.inet_aton(ADDRESS)
        + mac
        + socket.inet_aton(target)
    )
    return (mac if operation == 2 else b"\xff" * 6) + MAC + ARP + body

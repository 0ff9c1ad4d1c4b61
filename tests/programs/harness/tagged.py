"""The other end of an interface as frames with VLAN tags, by hand: the kernel needs no VLANs."""

import contextlib
import ctypes
import os
import socket
import struct
import time

SOL_PACKET, PACKET_AUXDATA = 263, 8
CUSTOMER, PROVIDER = 0x8100, 0x88A8


class Wire:
    """Frames with tags of any kind, which the kernel keeps beside received ones. With `inner` they
    have a second 802.1Q tag, and `inner_tag` is that of the last answer."""

    def __init__(self, world, own="10.10.20.9", interface="eth1", inner=None):
        self.own = own
        self.inner = inner
        self.inner_tag = None
        with world.at_peer():
            self.raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
        self.raw.bind((interface, 0))
        self.raw.setsockopt(SOL_PACKET, PACKET_AUXDATA, 1)
        self.mac = self.raw.getsockname()[4]

    def send(self, kind, tag, to, packet):
        inner = struct.pack("!HH", CUSTOMER, self.inner) if self.inner else b""
        self.raw.send(to + self.mac + struct.pack("!HH", kind, tag) + inner + packet)

    def without_inner(self, frame):
        """The frame without its second tag, if it has one."""
        kind, tag = struct.unpack_from("!HH", frame, 12)
        if self.inner and kind == CUSTOMER:
            self.inner_tag = tag
            return frame[:12] + frame[16:]
        return frame

    def answer(self, is_answer, seconds=1):
        """Kind of tag, control and the frame of the first answer, or three times None."""
        self.raw.settimeout(0.2)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            try:
                frame, control, _, address = self.raw.recvmsg(2048, 256)
            except TimeoutError:
                continue
            frame = self.without_inner(frame)
            if address[2] == socket.PACKET_OUTGOING or not is_answer(frame):
                continue
            data = next(d for l, k, d in control if (l, k) == (SOL_PACKET, PACKET_AUXDATA))
            tag, kind = struct.unpack_from("=HH", data, 16)
            return kind, tag, frame
        return None, None, None

    def asks(self, kind, tag, whom, seconds=1):
        """Asks by ARP; kind and control of the tag of the answer."""
        own, target = socket.inet_aton(self.own), socket.inet_aton(whom)
        arp = struct.pack("!HHHBBH", 0x0806, 1, 0x0800, 6, 4, 1)
        self.send(kind, tag, b"\xff" * 6, arp + self.mac + own + b"\0" * 6 + target)
        is_answer = lambda frame: frame[12:14] == b"\x08\x06" and frame[28:32] == target
        kind, tag, frame = self.answer(lambda it: is_answer(it) and it[21] == 2, seconds)
        self.other = frame[6:12] if frame else None
        return kind, tag

    def datagram(self, kind, tag, whom, port, end=b"ping"):
        """Sends one; the control of the tag of the answer, which ends so."""
        udp = struct.pack("!HHHH", 9, port, 12, 0) + b"ping"
        ip = struct.pack("!BBHHHBBH", 0x45, 0, 32, 1, 0, 64, 17, 0)
        ip += socket.inet_aton(self.own) + socket.inet_aton(whom)
        words = sum(struct.unpack("!10H", ip))
        words = ~((words & 0xFFFF) + (words >> 16)) & 0xFFFF
        packet = b"\x08\x00" + ip[:10] + struct.pack("!H", words) + ip[12:] + udp
        self.send(kind, tag, self.other, packet)
        return self.answer(lambda frame: frame[23] == 17 and frame.endswith(end))[1]


# Numbers of bpf(2), and of a program's parts.
BPF, PROG_LOAD, LINK_CREATE = 321, 5, 28
SCHED_CLS, TCX_EGRESS = 3, 47
PUSH_TAG = (
    (0xB7, 2, socket.htons(CUSTOMER)),
    (0xB7, 3, 5),
    # bpf_skb_vlan_push
    (0x85, 0, 18),
    # Goes on.
    (0xB7, 0, -1),
    (0x95, 0, 0),
)


def bpf(command, attributes):
    room = ctypes.create_string_buffer(attributes.ljust(128, b"\0"))
    found = ctypes.CDLL(None, use_errno=True).syscall(BPF, command, room, 128)
    if found < 0:
        raise OSError(ctypes.get_errno(), "bpf")
    return found


@contextlib.contextmanager
def all_tagged_beside(world, interface="eth1"):
    """Meanwhile all that the peer sends is in VLAN 5, with the tag beside the frame, where a card's
    driver leaves it."""
    code = b"".join(struct.pack("=BBhi", op, dst, 0, imm) for op, dst, imm in PUSH_TAG)
    room, licence = ctypes.create_string_buffer(code), ctypes.create_string_buffer(b"GPL")
    places = [ctypes.addressof(place) for place in (room, licence)]
    with world.at_peer():
        index = socket.if_nametoindex(interface)
        program = bpf(PROG_LOAD, struct.pack("=IIQQ", SCHED_CLS, len(PUSH_TAG), *places))
        link = bpf(LINK_CREATE, struct.pack("=IIII", program, index, TCX_EGRESS, 0))
    try:
        yield
    finally:
        os.close(link)
        os.close(program)

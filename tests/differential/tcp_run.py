"""A sequence of TCP on one stack: its segments as packets, and the observed packets of the
target."""

import struct
from dataclasses import dataclass

from packets import TCP, build, checksum, pseudo_header
from tcp_script import ACK, FIN, PEER_ISS, RST, SYN
from wire import ADDRESS

OPTIONS = {"mss": struct.pack("!BBH", 2, 4, 1460), "sack": b"\1\1\4\2", "wscale": b"\1\3\3\7"}


class TcpRun:
    """One script on one stack; `address` is the target's."""

    PORTS = 1

    def __init__(self, script, port, addresses):
        self.script = script
        self.port = port
        self.peer_port = port + 30_000
        self.address = addresses[0]
        self.target_iss = 0
        self.fresh = []
        # The ends of the segments that the target has sent: a retransmission carries no news, nor
        # does a probe before the acknowledged number.
        self.sent_to = -1
        self.acked = 0
        self.outcomes = []
        # Selects the packets of the target that belong to this run.
        self.keys = (self.peer_port,)

    def call(self, at):
        step = self.script.steps[at]
        words = step.words
        if step.name == "listen":
            words = (self.address, self.port, *words)
        elif step.name == "connect":
            words = (self.address, self.port, ADDRESS, self.peer_port)
        return [self.port, step.name, *words]

    def packets(self, at):
        return [self.built(self.script.steps[at])]

    def built(self, segment):
        options = b"".join(OPTIONS[name] for name in segment.options)
        ack = (self.target_iss + segment.ack) % 2**32 if segment.flags & ACK else 0
        if segment.flags & ACK and segment.ack <= self.sent_to:
            self.acked = max(self.acked, segment.ack)
        seq = (PEER_ISS + segment.seq) % 2**32
        offset = (20 + len(options)) // 4
        tcp = struct.pack(
            "!HHIIBBHHH",
            self.peer_port,
            self.port,
            seq,
            ack,
            offset << 4,
            segment.flags,
            segment.window,
            0,
            0,
        )
        tcp += options + b"y" * segment.length
        tcp = (
            tcp[:16]
            + checksum(pseudo_header(ADDRESS, self.address, TCP, len(tcp)) + tcp)
            + tcp[18:]
        )
        return build(ADDRESS, self.address, TCP, tcp)

    def take(self, packet):
        segment = parsed(packet.body)
        if segment.flags & SYN and segment.seq != self.target_iss:
            # A connection, or the next one of the two ends.
            self.target_iss, self.sent_to, self.acked = segment.seq, -1, 0
        self.fresh.append(segment)

    def end_step(self, answer, is_answer):
        """`is_answer`: the peer has sent something, so that even what was seen before may be the
        answer."""
        seen = []
        for segment in self.fresh:
            text, end = relative(segment, self.target_iss)
            is_handshake = is_answer and segment.flags & SYN
            is_again = end is not None and end <= self.sent_to and not is_handshake
            if end is not None:
                self.sent_to = max(self.sent_to, end)
            is_probe = (
                end is None
                and segment.flags == ACK
                and signed(segment.seq - self.target_iss) == self.acked - 1
            )
            if not is_again and not is_probe and text not in seen:
                seen.append(text)
        self.fresh = []
        self.outcomes.append((answer, tuple(seen)))

    def last_calls(self):
        return [[self.port, "close", which] for which in ("stream", "listener")]


@dataclass(frozen=True)
class Seen:
    """A segment of the target, with absolute numbers."""

    flags: int
    seq: int
    ack: int
    length: int
    options: tuple


def parsed(tcp):
    _, _, seq, ack, offset, flags = struct.unpack("!HHIIBB", tcp[:14])
    offset = (offset >> 4) * 4
    return Seen(flags & (FIN | SYN | RST | ACK), seq, ack, len(tcp) - offset, kinds(tcp[20:offset]))


def kinds(options):
    found, at = [], 0
    while at < len(options) and options[at] != 0:
        if options[at] == 1:
            at += 1
            continue
        found.append(options[at])
        at += max(options[at + 1], 2) if at + 1 < len(options) else 2
    return tuple(sorted(found))


def relative(segment, iss):
    """The segment in relative numbers, and the end of its sequence space if it occupies any."""
    flags = [
        name
        for bit, name in ((SYN, "SYN"), (FIN, "FIN"), (RST, "RST"), (ACK, "ACK"))
        if segment.flags & bit
    ]
    # A segment without a number of its own has zero (RFC 9293 3.10.7.1), which is not relative.
    seq = "zero" if segment.flags & RST and not segment.seq else signed(segment.seq - iss)
    ack = signed(segment.ack - PEER_ISS) if segment.flags & ACK else 0
    space = segment.length + bool(segment.flags & SYN) + bool(segment.flags & FIN)
    text = f"> {'|'.join(flags)} seq {seq} ack {ack} len {segment.length}"
    if segment.flags & SYN:
        text += f" options {segment.options}"
    return text, seq + space if space and seq != "zero" else None


def signed(number):
    number %= 2**32
    return number - 2**32 if number >= 2**31 else number

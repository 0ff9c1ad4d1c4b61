"""Random sequences of TCP's calls and segments."""

import random
import socket
from dataclasses import dataclass

from steps import Call, Script

# Peer's first sequence number; numbers in scripts and outcomes are relative to the first ones.
PEER_ISS = 1000
FIN, SYN, RST, PSH, ACK = 1, 2, 4, 8, 16
MSS = 1460


@dataclass(frozen=True)
class Segment:
    """A segment of the peer: `seq` from its first number, `ack` from the target's first number."""

    flags: int
    seq: int
    ack: int
    length: int
    window: int
    options: tuple = ()

    def text(self):
        names = [
            name
            for bit, name in ((SYN, "SYN"), (FIN, "FIN"), (RST, "RST"), (PSH, "PSH"), (ACK, "ACK"))
            if self.flags & bit
        ]
        options = f" with {' '.join(self.options)}" if self.options else ""
        return (
            f"< {'|'.join(names) or 'none'} seq {self.seq} ack {self.ack} len {self.length} win"
            f" {self.window}{options}"
        )


class Writer:
    """Tracks the state of a well-behaved peer: most steps continue from it, some deviate."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.seed = seed
        # Next numbers of the peer and of the target, as far as all went in order.
        self.peer_next = 1
        self.target_next = 1
        self.target_acked = 1
        self.is_open = True
        self.has_stream = True

    def script(self):
        is_active = self.random.random() < 0.4
        script = Script("tcp", self.seed)
        script.steps += self.active_open() if is_active else self.passive_open()
        for _ in range(self.random.randint(4, 10)):
            script.steps += self.step()
        return script

    def passive_open(self):
        steps = [Call("listen", (self.random.choice((1, 8)),)), self.syn()]
        if self.random.random() < 0.15:
            steps.append(self.odd_segment())
        steps.append(Segment(ACK, 1, 1, 0, self.window()))
        steps.append(Call("accept"))
        return steps

    def active_open(self):
        steps = [Call("connect")]
        if self.random.random() < 0.15:
            steps.append(self.odd_segment())
        flags = SYN if self.random.random() < 0.1 else SYN | ACK
        steps.append(Segment(flags, 0, 1 if flags & ACK else 0, 0, self.window(), self.options()))
        if flags == SYN:
            # Simultaneous open: the handshake ends with an ACK of the target's SYN.
            steps.append(Segment(ACK, 1, 1, 0, self.window()))
        return steps

    def syn(self):
        return Segment(SYN, 0, 0, 0, self.window(), self.options())

    def options(self):
        return tuple(
            name
            for name, share in (("mss", 0.9), ("sack", 0.5), ("wscale", 0.3))
            if self.random.random() < share
        )

    def window(self):
        return self.random.choice((65535, 65535, 65535, 8000, 1000))

    def step(self):
        """The next step, and mostly the ACK of what it makes the target send."""
        kind = self.random.choices(
            (self.call, self.orderly_segment, self.odd_segment), (45, 35, 20)
        )[0]
        step = kind()
        if self.target_next == self.target_acked or self.random.random() < 0.1:
            return [step]
        # Unacknowledged data is retransmitted at some time, which depends on timers.
        return [step, self.acknowledgment()]

    def acknowledgment(self):
        self.target_acked = self.target_next
        return Segment(ACK, self.peer_next, self.target_next, 0, self.window())

    def call(self):
        calls = (
            (24, self.send),
            (20, lambda: Call("receive", (self.random.choice((1, 500, 4096)),))),
            (
                6,
                lambda: Call(
                    "shutdown",
                    (
                        self.random.choice(
                            (socket.SHUT_WR, socket.SHUT_WR, socket.SHUT_RD, socket.SHUT_RDWR)
                        ),
                    ),
                ),
            ),
            (9, lambda: Call("close", ("stream",))),
            (2, lambda: Call("linger", (0,))),
            (8, lambda: Call("events")),
            (6, lambda: Call("state")),
            (6, lambda: Call("error")),
            (3, lambda: Call("option", (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1))),
            (
                2,
                lambda: Call(
                    "option", (socket.IPPROTO_TCP, socket.TCP_CORK, self.random.randint(0, 1))
                ),
            ),
        )
        call = self.random.choices([call for _, call in calls], [weight for weight, _ in calls])[
            0
        ]()
        if call.name in ("close", "shutdown") and self.is_open and call.words != (socket.SHUT_RD,):
            self.target_next += 1
            self.is_open = False
        return call

    def send(self):
        length = self.random.choice((1, 100, 1000, 1000))
        if self.is_open:
            self.target_next += length
        return Call("send", (length,))

    def orderly_segment(self):
        kind = self.random.choices(("data", "ack", "fin", "rst"), (50, 30, 15, 3))[0]
        length = self.random.choice((1, 100, 1000)) if kind == "data" else 0
        flags = {"data": ACK | PSH, "ack": ACK, "fin": FIN | ACK, "rst": RST}[kind]
        segment = Segment(flags, self.peer_next, self.target_next, length, self.window())
        self.peer_next += length + (kind == "fin")
        return segment

    def odd_segment(self):
        pick = self.random.choice
        flags = pick(
            (
                ACK,
                ACK,
                ACK | PSH,
                FIN | ACK,
                RST,
                RST | ACK,
                SYN,
                SYN | ACK,
                0,
                FIN,
                SYN | RST,
                SYN | FIN,
            )
        )
        seq = self.peer_next + pick(
            (0, 0, -1, 1, 100, -100, 1000, -1000, 400_000, 1_000_000, -100_000)
        )
        ack = self.target_next + pick((0, 0, 0, -1, 1, -100, 100_000, -100_000))
        return Segment(flags, seq, ack, pick((0, 0, 1, 100)), pick((0, 1000, 65535)))

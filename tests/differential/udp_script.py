"""Random sequences of UDP's calls, datagrams and ICMP errors."""

import random
import socket
from dataclasses import dataclass, replace

from steps import Call, Script

PEEK, TRUNC, DONTWAIT, ERRQUEUE = 0x02, 0x20, 0x40, 0x2000
# 0 and 1 are ports of one address, 2 is another address; errors also come from the router.
PEERS = ("peer0", "peer1", "peer2")
ROUTER = "router"
# The kind of a socket: an address of one family, or one of IPv4 on a socket of IPv6.
KINDS = ("v4", "v6", "mapped")

IP, IPV6 = socket.IPPROTO_IP, socket.IPPROTO_IPV6
OPTIONS = {
    "v4": {
        "RECVERR": (IP, 11),
        "RECVTTL": (IP, 12),
        "RECVTOS": (IP, 13),
        "PKTINFO": (IP, 8),
        "MTU_DISCOVER": (IP, 10),
        "TTL": (IP, 2),
        "TOS": (IP, 1),
    },
    "v6": {
        "RECVERR": (IPV6, 25),
        "RECVTTL": (IPV6, 51),
        "RECVTOS": (IPV6, 66),
        "PKTINFO": (IPV6, 49),
        "MTU_DISCOVER": (IPV6, 23),
        "TTL": (IPV6, 16),
        "TOS": (IPV6, 67),
    },
}

RCVBUF, RXQ_OVFL = (socket.SOL_SOCKET, socket.SO_RCVBUF), (socket.SOL_SOCKET, 40)

# With a datagram: its TTL or hop limit, its TOS or traffic class.
CONTROLS = {"v4": ((IP, 2, 9), (IP, 1, 0x20)), "v6": ((IPV6, 52, 9), (IPV6, 67, 0x20))}

UNREACHABLE, QUENCH, TIME_EXCEEDED, PARAMETER = 3, 4, 11, 12
UNREACHABLE6, TOO_BIG6, TIME_EXCEEDED6, PARAMETER6 = 1, 2, 3, 4
FRAGMENTATION_NEEDED = 4


@dataclass(frozen=True)
class Datagram:
    """From a peer to the script's port ("port"), an unused port ("closed"), or the one that was
    chosen for the socket ("chosen")."""

    peer: str
    to: str
    length: int
    mark: str
    fault: str = "none"
    tos: int = 0
    ttl: int = 64

    def text(self):
        fault = "" if self.fault == "none" else f" fault {self.fault}"
        return (
            f"< udp {self.peer} to {self.to} len {self.length} {self.mark} tos {self.tos} ttl"
            f" {self.ttl}{fault}"
        )


@dataclass(frozen=True)
class Error:
    """An ICMP error about the last datagram that the target has sent to `peer`, or about one as it
    might have sent."""

    source: str
    peer: str
    kind: int
    code: int
    value: int = 0
    fault: str = "none"

    def text(self):
        fault = "" if self.fault == "none" else f" fault {self.fault}"
        return (
            f"< icmp {self.kind}/{self.code} from {self.source} about {self.peer} value"
            f" {self.value}{fault}"
        )


@dataclass(frozen=True)
class Fragments:
    """A datagram in pieces of `size`; `number` tells it from others that come in pieces."""

    peer: str
    to: str
    length: int
    mark: str
    number: int
    size: int
    way: str
    tos: int = 0
    ttl: int = 64

    def text(self):
        return (
            f"< fragments {self.peer} to {self.to} len {self.length} {self.mark} number"
            f" {self.number} of {self.size} {self.way}"
        )


WAYS = (
    "in order",
    "reversed",
    "shuffled",
    "twice",
    "last twice",
    "overlapping",
    "overlapping backwards",
    "covered",
    "longer",
    "ends early",
    "missing",
    "ragged",
    "beyond",
    "whole",
    "empty piece",
    "small first",
)
# With nearly all in one piece, which has to fit in a frame.
TOGETHER = ("whole", "small first", "beyond")


@dataclass(frozen=True)
class Burst:
    """More datagrams at once than a small receive buffer holds, each with a distinct mark."""

    peer: str
    to: str
    length: int
    tos: int = 0
    ttl: int = 64
    MARKS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"

    def text(self):
        return f"< burst {self.peer} to {self.to} {len(self.MARKS)} of len {self.length}"


def kind_of(script):
    """The script's first call determines it."""
    return script.steps[0].words[1]


class Writer:
    def __init__(self, seed):
        self.random = random.Random(f"udp {seed}")
        self.seed = seed
        self.kind = self.pick(KINDS)
        self.is_bound = False
        # Sockets with a requested port.
        self.fixed = set()
        self.sockets = ["a"]
        self.marks = 0
        self.numbers = 0

    def pick(self, *arguments):
        return self.random.choice(*arguments)

    def happens(self, share):
        return self.random.random() < share

    def weighted(self, choices):
        return self.random.choices([it for _, it in choices], [weight for weight, _ in choices])[0]

    def script(self):
        script = Script("udp", self.seed)
        script.steps += self.opened("a")
        if self.happens(0.25):
            self.sockets.append("b")
            script.steps += self.opened("b")
        for _ in range(self.random.randint(5, 14)):
            script.steps += self.step()
        return script

    def opened(self, name):
        steps = [Call("udp_open", (name, self.kind))]
        if self.happens(0.35):
            steps.append(self.option(name, "RECVERR", 1))
        if self.happens(0.25):
            steps += [self.option(name, key, 1) for key in ("RECVTTL", "RECVTOS", "PKTINFO")]
        if self.happens(0.75):
            steps.append(self.bind(name))
        if self.happens(0.4):
            steps.append(Call("udp_connect", (name, self.pick(PEERS))))
        return steps

    def bind(self, name):
        where = self.weighted(((5, "any"), (4, "own"), (1, "foreign")))
        port = self.weighted(((6, "port"), (1, "chosen")))
        if port == "port" and where != "foreign":
            self.is_bound = True
            self.fixed.add(name)
        return Call("udp_bind", (name, where, port))

    def step(self):
        return self.weighted(
            (
                (45, self.call),
                (28, self.arrival),
                (9, self.pieces),
                (3, self.overflow),
                (15, self.error),
            )
        )()

    def arrival(self):
        """A datagram, and mostly a look at what it has done."""
        fault = self.weighted(
            (
                (20, "none"),
                (1, "checksum"),
                (1, "no checksum"),
                (1, "short"),
                (1, "long"),
                (1, "tiny"),
                (1, "port zero"),
                (1, "source port zero"),
            )
        )
        tos, ttl = self.pick(((0, 64), (0, 64), (0x2E << 2, 7), (1, 1)))
        datagram = Datagram(
            self.pick(PEERS),
            self.target(),
            self.pick((0, 1, 5, 100, 1000, 1400)),
            self.mark(),
            fault,
            tos,
            ttl,
        )
        return [datagram, *self.look()]

    def pieces(self):
        way, size = self.pick(WAYS), self.pick((8, 16, 256, 1280, 1400))
        length = (
            self.pick((9, 200, 1300, 3000))
            if size >= 256 and way not in TOGETHER
            else self.pick((9, 40, 100))
        )
        self.numbers += 1
        pieces = Fragments(
            self.pick(PEERS), self.target(), length, self.mark(), self.numbers, size, way
        )
        if way != "missing" or self.happens(0.4):
            return [pieces, *self.look()]
        return [pieces, *self.look(), replace(pieces, way="the missing one"), *self.look()]

    def overflow(self):
        """On a fresh socket with an empty buffer. The kernel counts a datagram's memory, the
        stack its bytes: in both some datagrams find no room, and the same ones."""
        name = self.pick(self.sockets)
        self.is_bound = True
        self.fixed.add(name)
        fresh = [Call("udp_reopen", (name, self.kind)), Call("udp_bind", (name, "any", "port"))]
        counted = [Call("udp_option", (name, *RXQ_OVFL, 1))] if self.happens(0.5) else []
        buffer = (
            [Call("udp_option", (name, *RCVBUF, self.pick((1, 2000, 8000))))]
            if self.happens(0.8)
            else []
        )
        again = [
            Datagram(self.pick(PEERS), "port", 5, self.mark()),
            Call("udp_receive_message", (name, 2000, 512, 0)),
        ]
        drain = Call("udp_drain", (name,))
        burst = Burst(self.pick(PEERS), "port", self.pick((700, 1400)))
        return [
            *fresh,
            *counted,
            *buffer,
            burst,
            drain,
            Call("udp_option", (name, *RCVBUF, 106_496)),
            *again,
        ]

    def error(self):
        if self.happens(0.25):
            errors = ((UNREACHABLE, code, 0) for code in range(16))
            errors = [
                *errors,
                (TIME_EXCEEDED, 0, 0),
                (TIME_EXCEEDED, 1, 0),
                (PARAMETER, 0, 0),
                (QUENCH, 0, 0),
            ]
            errors6 = [(UNREACHABLE6, code, 0) for code in range(8)] + [
                (TIME_EXCEEDED6, 0, 0),
                (PARAMETER6, 0, 40),
                (PARAMETER6, 1, 6),
            ]
        else:
            errors = [
                (UNREACHABLE, 3, 0),
                (UNREACHABLE, 1, 0),
                (UNREACHABLE, FRAGMENTATION_NEEDED, self.mtu()),
            ]
            errors6 = [(UNREACHABLE6, 4, 0), (UNREACHABLE6, 3, 0), (TOO_BIG6, 0, self.mtu())]
        kind, code, value = self.pick(errors6 if self.kind == "v6" else errors)
        peer = self.pick(PEERS)
        fault = self.weighted(
            ((20, "none"), (1, "checksum"), (1, "short quote"), (1, "foreign port"))
        )
        source = self.pick((peer, peer, ROUTER))
        # Mostly there is something to report.
        before = [self.send_to(self.pick(self.sockets), peer)] if self.happens(0.7) else []
        return [*before, Error(source, peer, kind, code, value, fault), *self.look()]

    def mtu(self):
        return self.pick((1400, 1300, 1280, 900, 400, 0, 2000))

    def look(self):
        name = self.pick(self.sockets)
        return (
            [
                self.weighted(
                    (
                        (3, Call("udp_receive", (name, 2000, 0))),
                        (3, self.receive_message(name)),
                        (1, self.queue(name)),
                        (2, Call("udp_events", (name,))),
                    )
                )
            ]
            if self.happens(0.6)
            else []
        )

    def call(self):
        name = self.pick(self.sockets)
        size = self.pick((0, 1, 50, 2000))
        flags = self.pick((0, 0, DONTWAIT, PEEK, TRUNC, PEEK | TRUNC))
        calls = (
            (10, lambda: Call("udp_receive", (name, size, flags))),
            (8, lambda: self.receive_message(name)),
            (5, lambda: self.queue(name)),
            (9, lambda: self.send_to(name, self.pick(PEERS))),
            (9, lambda: self.send(name)),
            (2, lambda: self.send_message(name)),
            (6, lambda: Call("udp_connect", (name, self.pick(PEERS)))),
            (4 if name in self.fixed else 0.3, lambda: Call("udp_disconnect", (name,))),
            (3, lambda: self.bind(name)),
            (5, lambda: Call("udp_events", (name,))),
            (5, lambda: Call("udp_error", (name,))),
            (3, lambda: Call("udp_names", (name,))),
            (2, lambda: Call("udp_waiting", (name,))),
            (2, lambda: self.shutdown(name)),
            (2, lambda: self.any_option(name)),
            (2, lambda: self.reopen(name)),
        )
        return [self.weighted(calls)()]

    def reopen(self, name):
        self.fixed.discard(name)
        return Call("udp_reopen", (name, self.kind))

    def receive_message(self, name):
        return Call(
            "udp_receive_message",
            (
                name,
                self.pick((0, 10, 2000)),
                self.pick((512, 512, 512, 30, 0)),
                self.pick((0, 0, PEEK, TRUNC)),
            ),
        )

    def queue(self, name):
        return Call(
            "udp_receive_message",
            (name, self.pick((2, 2000)), 512, ERRQUEUE | self.pick((0, 0, PEEK))),
        )

    def send(self, name):
        return Call("udp_send", (name, self.length(), self.mark(), self.pick((0, 0, 0, DONTWAIT))))

    def send_to(self, name, peer):
        return Call(
            "udp_send_to", (name, peer, self.length(), self.mark(), self.pick((0, 0, 0, DONTWAIT)))
        )

    def send_message(self, name):
        control = self.pick(CONTROLS["v6" if self.kind == "v6" else "v4"])
        return Call(
            "udp_send_message", (name, self.pick(PEERS), self.length(), self.mark(), *control)
        )

    def shutdown(self, name):
        return Call(
            "udp_shutdown", (name, self.pick((socket.SHUT_RD, socket.SHUT_WR, socket.SHUT_RDWR)))
        )

    def any_option(self, name):
        key, values = self.pick(
            (
                ("RECVERR", (0, 1)),
                ("MTU_DISCOVER", (0, 1, 2, 3)),
                ("RECVTTL", (0, 1)),
                ("TTL", (5,)),
                ("TOS", (0x20,)),
            )
        )
        return self.option(name, key, self.pick(values))

    def option(self, name, key, value):
        kind = self.pick(("v4", "v6")) if self.kind == "mapped" else self.kind
        return Call("udp_option", (name, *OPTIONS[kind][key], value))

    def target(self):
        if not self.is_bound:
            return "chosen"
        return self.weighted(((12, "port"), (1, "closed")))

    def length(self):
        return self.pick((0, 1, 5, 100, 1000, 1300, 1472, 1800))

    def mark(self):
        self.marks += 1
        return "abcdefghijklmnopqrstuvwxyz"[self.marks % 26]

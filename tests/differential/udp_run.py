"""A sequence of UDP on one stack: its datagrams and errors as packets, and the observed packets
of the target."""

import random
import re
import struct

from packets import ICMP, ICMPV6, UDP, build, checksum, fragment, pseudo_header
from udp_script import PEERS, ROUTER, Burst, Datagram, Fragments, kind_of

# No program listens on this port.
CLOSED = 9
FOREIGN = {"v4": "10.96.0.1", "v6": "fd00:96::1"}
ROUTERS = {"v4": "10.97.0.1", "v6": "fd00:97::1"}


class UdpRun:
    """One script on one stack. Its peers are behind the gateway and shared with no other
    sequence, so that the target's path information belongs to this script alone; names stand for
    its addresses and ports."""

    PORTS = 2

    def __init__(self, script, port, addresses):
        self.script = script
        self.port = port
        self.kind = kind_of(script)
        self.family = "v6" if self.kind == "v6" else "v4"
        self.own = addresses[self.family == "v6"]
        near, far = (peer_address(self.family, port + at) for at in (0, 1))
        self.peers = dict(
            zip(PEERS, ((near, port + 30_000), (near, port + 30_001), (far, port + 30_000)))
        )
        # The port that was chosen for a socket without a requested port.
        self.chosen = None
        # The last packet to each peer.
        self.sent = {}
        self.fresh = []
        self.outcomes = []
        # Selects the packets of the target that belong to this run.
        self.keys = (near, far, *(f"::ffff:{address}" for address in (near, far)))

    def call(self, at):
        step = self.script.steps[at]
        words = list(step.words)
        if step.name == "udp_bind":
            words[1:] = [[self.local(words[1]), self.port if words[2] == "port" else 0]]
        elif len(words) > 1 and words[1] in PEERS:
            address, port = self.peers[words[1]]
            words[1] = [self.mapped(address), port]
        return [self.port, step.name, *words]

    def local(self, where):
        if where == "any":
            return "0.0.0.0" if self.kind == "v4" else "::"
        return self.mapped({"own": self.own, "foreign": FOREIGN[self.family]}[where])

    def mapped(self, address):
        return f"::ffff:{address}" if self.kind == "mapped" else address

    def packets(self, at):
        step = self.script.steps[at]
        if isinstance(step, Fragments):
            return self.fragments(step)
        if isinstance(step, Burst):
            return self.burst(step)
        return [self.datagram(step) if isinstance(step, Datagram) else self.error(step)]

    def port_of(self, step):
        return {"port": self.port, "closed": CLOSED, "chosen": self.chosen or self.port}[step.to]

    def fragments(self, step):
        address, port = self.peers[step.peer]
        whole = self.udp(address, self.own, (port, self.port_of(step)), step)
        return [
            fragment(address, self.own, UDP, step.number, piece) for piece in pieces(whole, step)
        ]

    def burst(self, step):
        datagrams = (Datagram(step.peer, step.to, step.length, mark) for mark in step.MARKS)
        return [self.datagram(datagram) for datagram in datagrams]

    def datagram(self, step):
        address, port = self.peers[step.peer]
        to = self.port_of(step)
        source = 0 if step.fault == "source port zero" else port
        to = 0 if step.fault == "port zero" else to
        return build(
            address,
            self.own,
            UDP,
            faulty(self.udp(address, self.own, (source, to), step), step.fault),
            step.tos,
            step.ttl,
        )

    def udp(self, src, dst, ports, step):
        length = 8 + step.length
        udp = struct.pack("!HHHH", *ports, length, 0) + step.mark.encode() * step.length
        sum_ = checksum(pseudo_header(src, dst, UDP, length) + udp)
        return udp[:6] + (sum_ if sum_ != b"\0\0" else b"\xff\xff") + udp[8:]

    def error(self, step):
        is_v6 = self.family == "v6"
        quote = self.sent.get(step.peer) or self.might_have_sent(step.peer)
        header = 40 if is_v6 else 20
        if step.fault == "foreign port":
            quote = quote[:header] + struct.pack("!H", CLOSED) + quote[header + 2 :]
        quote = (
            quote[: header + 4] if step.fault == "short quote" else quote[: 1232 if is_v6 else 548]
        )
        source = ROUTERS[self.family] if step.source == ROUTER else self.peers[step.peer][0]
        icmp = struct.pack("!BBHI", step.kind, step.code, 0, error_word(is_v6, step)) + quote
        covered = pseudo_header(source, self.own, ICMPV6, len(icmp)) if is_v6 else b""
        icmp = icmp[:2] + checksum(covered + icmp) + icmp[4:]
        if step.fault == "checksum":
            icmp = icmp[:2] + bytes([icmp[2] ^ 0x55]) + icmp[3:]
        return build(source, self.own, ICMPV6 if is_v6 else ICMP, icmp)

    def might_have_sent(self, peer):
        address, port = self.peers[peer]
        udp = struct.pack("!HHHH", self.chosen or self.port, port, 18, 0) + b"?" * 10
        return build(self.own, address, UDP, udp)

    def take(self, packet):
        if packet.protocol == UDP and packet.offset == 0:
            source, port = struct.unpack("!HH", packet.body[:4])
            if source != self.port:
                self.chosen = source
            for name, peer in self.peers.items():
                if peer == (packet.dst, port):
                    self.sent[name] = packet.whole
        self.fresh.append(describe(packet))

    def end_step(self, answer, _):
        if isinstance(answer, str):
            answer = self.named(answer)
        self.outcomes.append((answer, tuple(self.named(text) for text in self.fresh)))
        self.fresh = []

    def named(self, text):
        """With the names of addresses and ports instead of numbers that differ between runs."""
        near, far = self.peers["peer0"][0], self.peers["peer2"][0]
        names = {near: "near", far: "far", self.own: "own", ROUTERS[self.family]: "router"}
        for address in sorted(names, key=len, reverse=True):
            text = re.sub(
                rf"(?<![0-9a-f.]){re.escape(address)}(?![0-9a-f.:])", names[address], text
            )
        text = re.sub(rf"/{self.port}\b", "/port", text)
        for at in (0, 1):
            text = re.sub(rf"/{self.port + 30_000 + at}\b", f"/p{at}", text)
        return re.sub(r"/\d{5}\b", "/chosen", text)

    def last_calls(self):
        return [[self.port, "udp_close"]]


def peer_address(family, number):
    return f"10.99.{number >> 8}.{number & 255}" if family == "v4" else f"fd00:99::{number:x}"


def pieces(whole, step):
    """The fragments of a datagram, as (offset, bytes, whether more follows)."""
    cuts = range(0, len(whole), step.size)
    right = [(at, whole[at : at + step.size], at + step.size < len(whole)) for at in cuts]
    first, *rest = right
    last_at, last, _ = right[-1]
    middle = len(right) // 2
    return {
        "in order": lambda: right,
        "reversed": lambda: right[::-1],
        "shuffled": lambda: random.Random(step.number).sample(right, len(right)),
        "twice": lambda: [first, first, *rest],
        "last twice": lambda: [right[-1], *right],
        # Overlaps with the next fragment, so that either order gives the same bytes.
        "overlapping": lambda: [(0, whole[: step.size + 8], first[2]), *rest],
        "overlapping backwards": lambda: [*rest[::-1], (0, whole[: step.size + 8], first[2])],
        "covered": lambda: [first, (0, whole[:8], True), *rest],
        "longer": lambda: [right[-1], (last_at, last + b"?" * 8, False), *right[:-1]],
        "ends early": lambda: [
            (
                (first[0], first[1], False)
                if len(right) == 1
                else (right[middle][0], right[middle][1], False)
            ),
            *right,
        ],
        "missing": lambda: [*right[:middle], *right[middle + 1 :]],
        "the missing one": lambda: [right[middle]],
        "ragged": lambda: [(0, first[1][:-3], True), *rest],
        "beyond": lambda: [(0, whole[: len(whole) & ~7], True), (65_528, b"?" * 16, False)],
        "whole": lambda: [(0, whole, False)],
        "empty piece": lambda: [(0, b"", True), *right],
        "small first": lambda: [(0, whole[:8], True), (8, whole[8:], False)],
    }[step.way]()


def faulty(udp, fault):
    if fault == "checksum":
        return udp[:6] + bytes([udp[6] ^ 0x55]) + udp[7:]
    if fault == "no checksum":
        return udp[:6] + b"\0\0" + udp[8:]
    length = len(udp) + {"short": -1, "long": 1}.get(fault, 0)
    if fault == "tiny":
        length = 7
    return udp[:4] + struct.pack("!H", length) + udp[6:]


def error_word(is_v6, step):
    """The second word: an MTU, a pointer, or zero."""
    if is_v6 or step.kind == 3:
        return step.value
    return step.value << 24


def describe(packet):
    """The packet as text."""
    where = f"{packet.src} to {packet.dst}"
    head = f"tos {packet.tos} ttl {packet.ttl}{' may be cut' if packet.may_be_cut else ''}"
    if packet.offset or packet.has_more:
        head += f" at {packet.offset}{' and more' if packet.has_more else ''}"
    if packet.offset:
        return f"> fragment {where} {head} len {len(packet.body)}"
    if packet.protocol == UDP:
        source, port, length, _ = struct.unpack("!HHHH", packet.body[:8])
        data = packet.body[8:]
        marks = "".join(map(chr, sorted(set(data)))) or "-"
        return (
            f"> udp {packet.src}/{source} to {packet.dst}/{port} {head} len {len(data)} of"
            f" {length - 8} {marks} {checksum_of(packet)}"
        )
    if packet.protocol in (ICMP, ICMPV6):
        kind, code, _, value = struct.unpack("!BBHI", packet.body[:8])
        return (
            f"> icmp {kind}/{code} {where} value {value} quotes"
            f" {len(packet.body) - 8} {head} {checksum_of(packet)}"
        )
    return f"> protocol {packet.protocol} {where} {head} len {len(packet.body)}"


def checksum_of(packet):
    if packet.has_more:
        return "checksum of more"
    if packet.protocol == UDP and packet.body[6:8] == b"\0\0":
        return "no checksum"
    covered = (
        b""
        if packet.protocol == ICMP
        else pseudo_header(packet.src, packet.dst, packet.protocol, len(packet.body))
    )
    return "right" if checksum(covered + packet.body) == b"\0\0" else "WRONG"

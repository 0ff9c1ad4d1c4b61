"""Random questions, near to what zones have and far from it."""

import random
import struct
from dataclasses import dataclass, field

from message import TYPES, question, show, wire

COMMON = [TYPES[name] for name in ("A", "AAAA", "MX", "NS", "SOA", "TXT", "CNAME", "DS", "ANY")]
ODD_TYPES = [0, 3, 10, 41, 99, 128, 248, 249, 250, 251, 253, 254, 256, 259, 32768, 65535]
LABELS = [
    "www",
    "x",
    "sub",
    "wild",
    "here",
    "old",
    "none",
    "c",
    "b",
    "new",
    "*",
    "odd",
    "star",
    "deep",
    "secure",
    "below",
    "insecure",
    "empty",
    "plain",
    "alias",
    "l" * 63,
]
NSID, COOKIE, UNKNOWN = (
    struct.pack("!HH", 3, 0),
    struct.pack("!HH", 10, 8) + b"12345678",
    struct.pack("!HH", 65001, 3) + b"abc",
)


@dataclass
class Question:
    labels: list
    qtype: int
    size: int | None = 1232
    more: dict = field(default_factory=dict)

    def message(self, number):
        return question(self.labels, self.qtype, number, self.size, **self.more)

    def __str__(self):
        more = "".join(f" {key}={value}" for key, value in self.more.items())
        return f"{show(wire(self.labels))} type {self.qtype} size {self.size}{more}"


def owners(path):
    """The labels of the names in a zone file, relative to its origin or not."""
    found = set()
    for line in path.read_text().splitlines():
        word = line.split()[0] if line[:1].strip() else "@"
        if word[0] in "$;@" or "\\" in word:
            continue
        found.add(word.rstrip("."))
    return sorted(found)


class Source:
    """Questions for these zones."""

    def __init__(self, files, seed):
        self.random = random.Random(seed)
        self.origins = {origin: [label.encode() for label in origin.split(".")] for origin in files}
        self.owners = {origin: owners(path) for origin, path in files.items()}

    def name(self, origin):
        pick = self.random
        suffix = self.origins[origin]
        kind = pick.random()
        if kind < 0.45:
            relative = pick.choice(self.owners[origin]).encode().split(b".")
            relative = relative[: -len(suffix)] if relative[-len(suffix) :] == suffix else relative
        elif kind < 0.6:
            relative = [pick.choice(LABELS).encode() for _ in range(pick.randrange(4))]
        elif kind < 0.75:
            relative = [
                pick.choice(LABELS).encode(),
                *pick.choice(self.owners[origin]).encode().split(b"."),
            ]
            relative = relative[: -len(suffix)] if relative[-len(suffix) :] == suffix else relative
        elif kind < 0.85:
            # An empty non-terminal, perhaps.
            relative = pick.choice(self.owners[origin]).encode().split(b".")
            relative = relative[: -len(suffix)] if relative[-len(suffix) :] == suffix else relative
            relative = relative[pick.randrange(len(relative) + 1) :]
        elif kind < 0.95:
            relative = [pick.randbytes(pick.randrange(1, 8)) for _ in range(pick.randrange(1, 3))]
        elif kind < 0.98:
            return [b"www", b"elsewhere", b"test"]
        else:
            relative = [b"odd.dot"] if pick.random() < 0.5 else [b"odd\0zero"]
        labels = [label for label in relative if label] + suffix
        if pick.random() < 0.2:
            labels = [
                bytes(
                    byte ^ 0x20 if 65 <= byte & 0xDF <= 90 and pick.random() < 0.5 else byte
                    for byte in label
                )
                for label in labels
            ]
        while sum(map(len, labels)) + len(labels) + 1 > 255:
            labels = labels[1:]
        return labels

    def next(self):
        pick = self.random
        origin = pick.choice(list(self.origins))
        kind = pick.random()
        qtype = (
            pick.choice(COMMON)
            if kind < 0.7
            else (
                pick.choice([value for name, value in TYPES.items() if name != "AXFR"])
                if kind < 0.95
                else pick.choice(ODD_TYPES)
            )
        )
        more = {}
        size = pick.choice([None, 512, 1232, 1232, 4096, 0, 65535])
        if size is not None:
            more["do"] = pick.random() < 0.5
            chance = pick.random()
            if chance < 0.05:
                more["options"] = pick.choice([NSID, UNKNOWN, NSID + UNKNOWN])
            elif chance < 0.07:
                more["options"] = COOKIE
            elif chance < 0.08:
                more["version"] = pick.randrange(1, 256)
        more["flags"] = pick.choice([0, 0x0100, 0x0100, 0x0110, 0x0120, 0x0010])
        if pick.random() < 0.02:
            more["qclass"] = pick.choice([3, 4, 254, 255, 0, 77])
        return Question(self.name(origin), qtype, size, more)

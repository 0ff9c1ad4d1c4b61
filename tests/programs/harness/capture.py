"""A capture at the peer's end of the wire."""

import re
import signal

from .process import until

LINE = re.compile(r"^(\d+\.\d+) IP (\S+) > (\S+): Flags \[([^\]]*)\](.*)$")


class Capture:
    """Runs tcpdump while the block is open; afterwards `segments` has what passed."""

    def __init__(self, world, *words):
        self.world = world
        self.words = words
        self.segments = []

    def __enter__(self):
        self.process = self.world.peer(
            "tcpdump",
            "-i",
            "eth1",
            "-tt",
            "-n",
            "-l",
            "-s",
            "128",
            "-B",
            "8192",
            "--immediate-mode",
            *self.words
        )
        until(lambda: "listening on" in self.process.errors(), 5, "tcpdump listens")
        return self

    def __exit__(self, *_):
        import time

        time.sleep(0.3)
        self.process.signal(signal.SIGINT)
        self.process.wait(5)
        for line in self.process.output().splitlines():
            found = LINE.match(line)
            if found:
                self.segments.append(Segment(*found.groups()))


class Segment:
    def __init__(self, time, source, target, flags, rest):
        self.time = float(time)
        self.source = source
        self.target = target
        self.flags = flags
        length = re.search(r"length (\d+)", rest)
        self.length = int(length.group(1)) if length else 0
        ack = re.search(r"\back (\d+)", rest)
        self.ack = int(ack.group(1)) if ack else None
        self.seq = rest

    def is_from(self, address):
        return self.source.startswith(address + ".")

"""Clients of a server that is being replaced, and what they met."""

import json
import subprocess

from .world import PROGRAMS, PYTHON

# Above this time a SYN or its answer was lost: nothing else takes a second.
LOST_MS = 950


class Visitors:
    """Clients at the peer while the block runs; afterwards `report` has their results."""

    def __init__(self, world, port, *, closing=8, keeping=4, idling=4):
        self.words = [
            PYTHON,
            "-u",
            PROGRAMS / "visitors.py",
            world.address,
            port,
            closing,
            keeping,
            idling,
        ]
        self.world = world
        self.report = None

    def __enter__(self):
        self.process = self.world.peer(*self.words, stdin=subprocess.PIPE)
        return self

    def __exit__(self, kind, *_):
        self.process.child.stdin.close()
        output = self.process.finish(20)
        if kind is None:
            self.report = json.loads(output)

    def requests(self):
        return sum(self.report["requests"].values())

    def slowest_ms(self):
        return max((slow[0] for slow in self.report["slowest_ms"].values()), default=0)

    def assert_untroubled(self):
        """No request failed, and none waited for a SYN that had to be sent again."""
        assert not self.report["failures"], self.report
        assert self.requests() > 0, self.report
        waited = self.slowest_ms() >= LOST_MS and self.report["tcp"]["SYNs again"] > 0
        assert not waited, self.report

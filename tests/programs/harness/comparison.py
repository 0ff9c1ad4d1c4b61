"""What Slipstack's captures have and the kernel's of the same test have not.

A finding is compared by how often it was seen: who waits for whom, and with it the count, differs from run to run on
the kernel too, so that twice the kernel's count and a few more are its like. captures.toml explains what exceeds it."""

import json
import tomllib
from pathlib import Path

from .registry import MODES

# What only the end of a connection brings; a capture that was full before does not have it.
OF_THE_END = "Connection reset"
TIMES = 2
AND_MORE = 3


def clear(folder):
    """Removes what a former run has left: it is nobody's baseline."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for file in (*folder.glob("*.json"), *folder.glob("*.pcap")):
        file.unlink()


class Explained:
    """What captures.toml says of a difference: in which tests it is none of our faults, and how often."""

    def __init__(self, file):
        said = tomllib.loads(Path(file).read_text())
        self.differences = said.get("difference", [])
        self.incomplete = said.get("incomplete", [])

    def covers(self, name, what, count):
        entries = (entry for entry in self.differences if entry["what"] == what and count <= entry["most"])
        return any(is_named(name, entry) for entry in entries)

    def uncovered(self, incomplete):
        """Those of `incomplete` that no entry names, or that are more than it allows."""
        left = list(incomplete)
        for entry in self.incomplete:
            named = [one for one in left if is_named(one, entry)][: entry["most"]]
            left = [one for one in left if one not in named]
        return left


def is_named(name, entry):
    return any(name.startswith(start) for start in entry.get("tests", [""]))


class Comparison:
    """`recorded` are the tests and modes that have passed and were to be captured, `of_kernel` the names of all tests
    that run on the kernel: those are compared with their own capture on it, others with all of the kernel's."""

    def __init__(self, folder, explained_in, recorded, of_kernel):
        self.explained = Explained(explained_in)
        # As lines, all of them.
        self.findings = []
        self.explained_lines = []
        self.compared = 0
        self.compared_alone = 0
        # Captures that lack frames or are missing, or whose counterpart does or is.
        self.incomplete = []
        said = {name_and_mode(file): json.loads(file.read_text()) for file in sorted(Path(folder).glob("*.json"))}
        kernels = {name: one for (name, mode), one in said.items() if mode == "kernel"}
        anywhere = {"is_full": False, "findings": most_of(kernels.values())} if kernels else None
        for name, mode in sorted(set(recorded) | set(said)):
            if mode != "kernel":
                self._judge(name, mode, said.get((name, mode)), kernels.get(name) if name in of_kernel else anywhere)
                self.compared_alone += name not in of_kernel
        if not self.compared:
            self.findings.append("nothing was compared: no test has a capture on Slipstack and one on the kernel")
        self.findings += [f"{line}: not compared, frames or a capture are missing" for line in self.explained.uncovered(self.incomplete)]

    def _judge(self, name, mode, ours, kernel):
        if any(one is None or one["findings"] is None for one in (ours, kernel)):
            self.incomplete.append(f"{name} ({mode})")
            return
        self.compared += 1
        for what, count in ours["findings"].items():
            allowed = like(kernel["findings"].get(what, 0))
            if count <= allowed or kernel["is_full"] and OF_THE_END in what:
                continue
            line = f"{name} ({mode}): {count} × {what} (kernel: {kernel['findings'].get(what, 0)})"
            is_known = self.explained.covers(name, what, count - allowed)
            (self.explained_lines if is_known else self.findings).append(line)

    def summary(self):
        lines = [
            f"captures: {self.compared} compared with the kernel's of the same test"
            f" ({self.compared_alone} of tests for Slipstack alone with all of the kernel's), {len(self.incomplete)} incomplete,"
            f" {len(self.findings)} findings, {len(self.explained_lines)} differences explained in captures.toml"
        ]
        lines += [f"    explained: {line}" for line in self.explained_lines]
        lines += [f"    incomplete: {line}" for line in self.incomplete]
        lines += [f"    FOUND: {line}" for line in self.findings]
        return "\n".join(lines)


def name_and_mode(file):
    name, mode, _ = file.name.rsplit(".", 2)
    assert mode in MODES, f"{file} is no capture's findings"
    return name, mode


def like(count):
    return TIMES * count + AND_MORE if count else 0


def most_of(kernels):
    found = {}
    for one in kernels:
        for what, count in (one["findings"] or {}).items():
            found[what] = max(count, found.get(what, 0))
    return found

"""Findings that Slipstack's captures have and the kernel's of the same test have not.

Findings are compared by their number. The order of processes, and with it the number, differs
from run to run on the kernel too, so twice the kernel's number and a few more count as equal.
captures.toml explains numbers above that. A test that still differs is run again several times
on both: tshark's warnings about the order and the timing of frames (of TCP) are a finding if
they are in two runs, any other difference at once."""

import json
import tomllib
from pathlib import Path

from .registry import MODES

# Findings that belong to the end of a connection; a capture that was full before has none.
OF_THE_END = "Connection reset"
TIMES = 2
AND_MORE = 3
# Findings that differ from run to run, and the number of runs that have to show them.
OF_TIMING = "warning: TCP: "
SEEN_IN = 2


def clear(folder):
    """Removes captures of former runs, so that they are not used as a baseline."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for file in (*folder.rglob("*.json"), *folder.rglob("*.pcap")):
        file.unlink()


def further(folder, number):
    """The folder of the captures of a further run of some tests."""
    return Path(folder) / f"again-{number}"


def read(folder):
    """Of each test and mode what its runs have shown, the first one first."""
    said = {}
    for one in (Path(folder), *sorted(Path(folder).glob("again-*"))):
        for file in sorted(one.glob("*.json")):
            said.setdefault(name_and_mode(file), []).append(json.loads(file.read_text()))
    return said


class Explained:
    """An entry of captures.toml: the tests in which a difference is not a fault of ours, and the
    largest number."""

    def __init__(self, file):
        said = tomllib.loads(Path(file).read_text())
        self.differences = said.get("difference", [])
        self.incomplete = said.get("incomplete", [])

    def covers(self, name, what, count):
        entries = (
            entry for entry in self.differences if entry["what"] == what and count <= entry["most"]
        )
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
    """`recorded` are the tests and modes that have passed and were to be captured, `of_kernel`
    the names of all tests that run on the kernel: those are compared with their own capture on
    it, others with all of the kernel's."""

    def __init__(self, folder, explained_in, recorded, of_kernel):
        self.explained = Explained(explained_in)
        # As lines, all of them.
        self.findings = []
        self.explained_lines = []
        self.once_lines = []
        # The tests and modes with findings.
        self.differing = []
        self.compared = 0
        self.compared_alone = 0
        # Captures that lack frames or are missing, or whose counterpart does or is.
        self.incomplete = []
        said = read(folder)
        kernels = {name: runs for (name, mode), runs in said.items() if mode == "kernel"}
        whole = [run for runs in kernels.values() for run in runs if run["findings"] is not None]
        anywhere = [{"is_full": False, "findings": most_of(whole)}] if whole else []
        for name, mode in sorted(set(recorded) | set(said)):
            if mode != "kernel":
                self._judge(
                    name,
                    mode,
                    said.get((name, mode), []),
                    kernels.get(name, []) if name in of_kernel else anywhere,
                )
                self.compared_alone += name not in of_kernel
        if not self.compared:
            self.findings.append(
                "nothing was compared: no test has a capture on Slipstack and one on the kernel"
            )
        self.findings += [
            f"{line}: not compared, frames or a capture are missing"
            for line in self.explained.uncovered(self.incomplete)
        ]

    def _judge(self, name, mode, ours, kernels):
        kernel = most_of(kernels)
        if not ours or kernel is None or any(run["findings"] is None for run in ours):
            self.incomplete.append(f"{name} ({mode})")
            return
        self.compared += 1
        is_full = any(run["is_full"] for run in kernels)
        for what in sorted({what for run in ours for what in run["findings"]}):
            if not (is_full and OF_THE_END in what):
                self._judge_one(
                    name,
                    mode,
                    what,
                    [run["findings"].get(what, 0) for run in ours],
                    kernel.get(what, 0),
                )

    def _judge_one(self, name, mode, what, counts, of_kernel):
        allowed = like(of_kernel)
        beyond = [count - allowed for count in counts if count > allowed]
        unknown = [count for count in beyond if not self.explained.covers(name, what, count)]
        if not beyond:
            return
        line = f"{name} ({mode}): {', '.join(map(str, counts))} × {what} (kernel: {of_kernel})"
        if not unknown:
            self.explained_lines.append(line)
        elif what.startswith(OF_TIMING) and len(unknown) < min(SEEN_IN, len(counts)):
            self.once_lines.append(line)
        else:
            self.findings.append(line)
            self.differing += [(name, mode)] if (name, mode) not in self.differing else []

    def summary(self):
        lines = [
            f"captures: {self.compared} compared with the kernel's of the same test"
            f" ({self.compared_alone} of tests for Slipstack alone with all of the kernel's),"
            f" {len(self.incomplete)} incomplete, {len(self.findings)} findings,"
            f" {len(self.explained_lines)} differences explained in captures.toml,"
            f" {len(self.once_lines)} seen in one run only"
        ]
        lines += [f"    explained: {line}" for line in self.explained_lines]
        lines += [f"    once: {line}" for line in self.once_lines]
        lines += [f"    incomplete: {line}" for line in self.incomplete]
        lines += [f"    FOUND: {line}" for line in self.findings]
        return "\n".join(lines)


def name_and_mode(file):
    name, mode, _ = file.name.rsplit(".", 2)
    assert mode in MODES, f"{file} is no capture's findings"
    return name, mode


def like(count):
    return TIMES * count + AND_MORE if count else 0


def most_of(runs):
    """The most that any run has shown of each finding. `None`: no run, or one that lacks frames."""
    if not runs or any(run["findings"] is None for run in runs):
        return None
    whats = {what for run in runs for what in run["findings"]}
    return {what: max(run["findings"].get(what, 0) for run in runs) for what in whats}

"""What tshark's expert mode says of a test's frames, on the kernel and on Slipstack.

The wire of a recorded test has no offloads: each frame is as long as the MTU allows and carries its own
checksums, and the capture at the peer's end shows what a wire between two machines would."""

import collections
import json
import re
import shutil
import signal
import subprocess
import time
import tomllib
from pathlib import Path

from .process import until

# A bulk transfer's first part says what the rest would.
FRAMES_MAX = 100_000
OFFLOADS = ("tx", "tso", "gso", "gro")
# Longest time tshark may take with one, on a machine that does other things too.
READING_S = 300
CHECKS = ("ip.check_checksum", "tcp.check_checksum", "udp.check_checksum")
# What a program sends is not ours: these would take the bytes of a test for their own.
NOT_ASKED = ("thrift", "gryphon")
# What only the end of a connection brings; a capture that was full before does not have it.
OF_THE_END = "Connection reset"
LEVELS = {"Errors": "error", "Warns": "warning"}
LINE = re.compile(r"^\s+(\d+)\s+(\S+)\s+(\S+)\s+(.+)$")


class Recording:
    """Captures everything that reaches the peer's interface of a test."""

    def __init__(self, world):
        self.file = world.folder / "wire.pcap"
        self.is_whole = False
        self.is_full = False
        for namespace in (world.stack_ns, world.peer_ns):
            words = [word for name in OFFLOADS for word in (name, "off")]
            subprocess.run([*namespace.prefix(), "ethtool", "-K", "eth1", *words], capture_output=True, check=True)
        words = ["-i", "eth1", "-n", "-U", "--immediate-mode", "-B", "65536", "-Z", "root", "-c", FRAMES_MAX, "-w", self.file]
        self.process = world.peer("tcpdump", *words)
        until(lambda: "listening on" in self.process.errors(), 5, "tcpdump listens")

    def end(self):
        self.is_full = not self.process.is_running()
        if self.process.is_running():
            # What is on its way to tcpdump.
            time.sleep(0.3)
            self.process.signal(signal.SIGINT)
        self.process.wait(10)
        dropped = re.search(r"(\d+) packets? dropped by kernel", self.process.errors())
        self.is_whole = dropped is not None and dropped.group(1) == "0"

    def keep(self, folder, stem):
        shutil.move(self.file, Path(folder) / f"{stem}.pcap")

    def findings(self):
        """Errors and warnings with their numbers; None: frames are missing from the capture."""
        if not self.is_whole:
            return None
        words = ["tshark", "-n", "-r", self.file, "-q", "-z", "expert,warn"]
        for name in CHECKS:
            words += ["-o", f"{name}:TRUE"]
        for name in NOT_ASKED:
            words += ["--disable-protocol", name]
        text = subprocess.run([str(word) for word in words], capture_output=True, text=True, errors="replace", timeout=READING_S, check=True).stdout
        return parsed(text)


def parsed(text):
    findings = collections.Counter()
    level = None
    for line in text.splitlines():
        head = line.split(" ", 1)[0]
        level = LEVELS.get(head, level)
        found = LINE.match(line)
        if found and level and found.group(1).isdigit():
            count, _, protocol, summary = found.groups()
            findings[f"{level}: {protocol}: {summary.strip()}"] += int(count)
    return findings


def write(folder, mode, name, recording):
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    said = {"is_full": recording.is_full, "findings": recording.findings()}
    (folder / f"{name}.{mode}.json").write_text(json.dumps(said, indent=1, sort_keys=True))


class Explained:
    """What captures.toml says of a difference: in which tests it is none of our faults, and how often."""

    def __init__(self, file):
        self.entries = tomllib.loads(file.read_text())["difference"]

    def covers(self, name, what, count):
        return any(
            entry["what"] == what and count <= entry["most"] and any(name.startswith(start) for start in entry.get("tests", [""]))
            for entry in self.entries
        )


def compare(folder, explained_in):
    """What Slipstack's captures have and the kernel's of the same test have not: lines without an
    explanation, the number of explained ones, and the number of captures."""
    explained = Explained(explained_in)
    differences = []
    compared = 0
    for file in sorted(Path(folder).glob("*.kernel.json")):
        kernel = json.loads(file.read_text())
        for mode in ("inprocess", "instance"):
            other = file.with_name(file.name.replace(".kernel.", f".{mode}."))
            ours = json.loads(other.read_text()) if other.exists() else None
            if ours is None or ours["findings"] is None or kernel["findings"] is None:
                continue
            compared += 1
            name = file.name.removesuffix(".kernel.json")
            differences += [
                (name, mode, what, count)
                for what, count in ours["findings"].items()
                if what not in kernel["findings"] and not (kernel["is_full"] and OF_THE_END in what)
            ]
    unexplained = [
        f"{name} ({mode}): {count} × {what}"
        for name, mode, what, count in differences
        if not explained.covers(name, what, count)
    ]
    return unexplained, len(differences) - len(unexplained), compared

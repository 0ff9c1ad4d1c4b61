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
FRAMES_MAX = 200_000
OFFLOADS = ("tx", "tso", "gso", "gro")
CHECKS = ("ip.check_checksum", "tcp.check_checksum", "udp.check_checksum")
LEVELS = {"Errors": "error", "Warns": "warning"}
LINE = re.compile(r"^\s+(\d+)\s+(\S+)\s+(\S+)\s+(.+)$")


class Recording:
    """Captures everything that reaches the peer's interface of a test."""

    def __init__(self, world):
        self.file = world.folder / "wire.pcap"
        self.is_whole = False
        for namespace in (world.stack_ns, world.peer_ns):
            words = [word for name in OFFLOADS for word in (name, "off")]
            subprocess.run([*namespace.prefix(), "ethtool", "-K", "eth1", *words], capture_output=True, check=True)
        words = ["-i", "eth1", "-n", "-U", "--immediate-mode", "-B", "65536", "-Z", "root", "-c", FRAMES_MAX, "-w", self.file]
        self.process = world.peer("tcpdump", *words)
        until(lambda: "listening on" in self.process.errors(), 5, "tcpdump listens")

    def end(self):
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
        text = subprocess.run([str(word) for word in words], capture_output=True, text=True, errors="replace", timeout=300, check=True).stdout
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


def write(folder, mode, name, findings):
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.{mode}.json").write_text(json.dumps(findings, indent=1, sort_keys=True))


def compare(folder, explained_in):
    """What Slipstack's captures have and the kernel's of the same test have not: lines without an
    explanation, the number of explained ones, and the number of captures."""
    explained = {entry["what"] for entry in tomllib.loads(explained_in.read_text())["difference"]}
    differences = []
    compared = 0
    for file in sorted(Path(folder).glob("*.kernel.json")):
        kernel = json.loads(file.read_text())
        for mode in ("inprocess", "instance"):
            other = file.with_name(file.name.replace(".kernel.", f".{mode}."))
            ours = json.loads(other.read_text()) if other.exists() else None
            if ours is None or kernel is None:
                continue
            compared += 1
            name = file.name.removesuffix(".kernel.json")
            differences += [(what, f"{name} ({mode}): {count} × {what}") for what, count in ours.items() if what not in kernel]
    unexplained = [line for what, line in differences if what not in explained]
    return unexplained, len(differences) - len(unexplained), compared

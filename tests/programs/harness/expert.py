"""The findings of tshark's expert mode in a test's frames, on the kernel and on Slipstack.

The interface of a recorded test has no offloads: each frame is at most one MTU long and has its
own checksums, and the capture at the peer's end shows what a cable between two machines would
carry."""

import collections
import functools
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

from .process import until
from .world import World

# The first part of a bulk transfer represents the rest.
FRAMES_MAX = 100_000
# Room for all of them: where the machine is busy tcpdump comes late.
BUFFER_KIB = 196_608
OFFLOADS = ("tx", "tso", "gso", "gro")
# Longest time that tshark may take for one capture, on a loaded machine.
READING_S = 300
CHECKS = ("ip.check_checksum", "tcp.check_checksum", "udp.check_checksum")
# Payload is not checked: tshark guesses its protocol by ports that were chosen at random.
LAYERS = {
    "_ws",
    "arp",
    "data",
    "eth",
    "frame",
    "icmp",
    "icmpv6",
    "igmp",
    "ip",
    "ipv6",
    "tcp",
    "udp",
    "vlan",
}
# The peer is the kernel: when its program reads too slowly, the window that it offers closes. And a
# RST with the number zero refuses a SYN: a test that waits for its server tries until the server
# has started.
ASKED = (
    f"!(tcp.analysis.zero_window && (ip.src == {World.PEER} || ipv6.src == {World.PEER6}))"
    " && !(tcp.flags.reset == 1 && tcp.seq_raw == 0)"
)
LEVELS = {"Errors": "error", "Warns": "warning"}
RESET = "warning: TCP: Connection reset (RST)"
# A late segment for a connection that is closed at one end and in TIME-WAIT at the other.
RESET_OF_THE_CLOSED = f"{RESET} of what came behind both ends"
FIELDS = ("tcp.stream", "tcp.srcport", "tcp.flags", "tcp.seq_raw", "tcp.ack_raw", "tcp.len")
FIN, RST, ACK = 0x01, 0x04, 0x10
LINE = re.compile(r"^\s+(\d+)\s+(\S+)\s+(\S+)\s+(.+)$")


class Recording:
    """Captures everything that reaches the peer's interface of a test."""

    def __init__(self, world):
        self.file = world.folder / "wire.pcap"
        self.is_whole = False
        self.is_full = False
        for namespace in (world.stack_ns, world.peer_ns):
            words = [word for name in OFFLOADS for word in (name, "off")]
            subprocess.run(
                [*namespace.prefix(), "ethtool", "-K", "eth1", *words],
                capture_output=True,
                check=True,
            )
        words = [
            "-i",
            "eth1",
            "-n",
            "-U",
            "--immediate-mode",
            "-B",
            BUFFER_KIB,
            "-Z",
            "root",
            "-c",
            FRAMES_MAX,
            "-w",
            self.file,
        ]
        self.process = world.recorder = world.peer("tcpdump", *words)
        until(lambda: "listening on" in self.process.errors(), 5, "tcpdump listens")

    def end(self):
        if self.process.is_running():
            # Frames on their way to tcpdump.
            time.sleep(0.3)
            self.process.signal(signal.SIGINT)
        self.process.wait(10)
        self.is_full = self._counted("captured") >= FRAMES_MAX
        self.is_whole = self._counted("dropped by kernel") == 0

    def _counted(self, what):
        found = re.search(rf"(\d+) packets? {what}", self.process.errors())
        assert (
            found
        ), f"tcpdump has not told how many packets were {what}: {self.process.errors()[-300:]!r}"
        return int(found.group(1))

    def keep(self, folder, stem):
        shutil.move(self.file, Path(folder) / f"{stem}.pcap")

    def findings(self):
        """Errors and warnings with their numbers; None: frames are missing from the capture."""
        return findings(self.file) if self.is_whole else None


@functools.cache
def configuration():
    """A folder with tshark's settings: only the protocols that the stack implements are enabled."""
    folder = tempfile.TemporaryDirectory(prefix="ss-tshark-")
    known = subprocess.run(
        ["tshark", "-G", "protocols"], capture_output=True, text=True, check=True
    ).stdout
    filters = [line.split("\t")[2] for line in known.splitlines()]
    others = [name for name in filters if name.split(".")[0] not in LAYERS]
    (Path(folder.name) / "disabled_protos").write_text("".join(f"{name}\n" for name in others))
    return folder


def findings(file):
    found = parsed(tshark(file, "-q", "-z", f"expert,warn,{ASKED}"))
    if found[RESET]:
        streams = ",".join(
            sorted(
                set(
                    tshark(
                        file,
                        "-Y",
                        f"tcp.flags.reset == 1 && {ASKED}",
                        "-T",
                        "fields",
                        "-e",
                        "tcp.stream",
                    ).split()
                )
            )
        )
        words = [word for name in FIELDS for word in ("-e", name)]
        late = resets_of_the_closed(
            tshark(file, "-Y", f"tcp.stream in {{{streams}}}", "-T", "fields", *words)
        )
        found[RESET] -= late
        found[RESET_OF_THE_CLOSED] += late
    return +found


def tshark(file, *wanted):
    words = ["tshark", "-n", "-r", file, *wanted]
    for name in CHECKS:
        words += ["-o", f"{name}:TRUE"]
    settings = {**os.environ, "WIRESHARK_CONFIG_DIR": configuration().name}
    done = subprocess.run(
        [str(word) for word in words],
        capture_output=True,
        text=True,
        errors="replace",
        env=settings,
        timeout=READING_S,
        check=True,
    )
    return done.stdout


class Side:
    """One end of a connection, by what it has sent."""

    def __init__(self):
        # Behind its FIN; whether that acknowledged the other's (then it has no TIME-WAIT); all it
        # has acknowledged.
        self.end = None
        self.is_second = False
        self.acked = set()


def resets_of_the_closed(lines):
    """The number of resets from an end that was closed: its own FIN acknowledged the peer's, and
    the peer had acknowledged its FIN before. RFC 9293 3.10.7.1: such a RST has the number that
    the late segment acknowledged, and no ACK."""
    sides = {}
    count = 0
    for line in lines.splitlines():
        stream, port, flags, seq, ack, length = (int(word, 0) for word in line.split("\t"))
        here = sides.setdefault((stream, port), Side())
        there = next(
            (side for (number, other), side in sides.items() if number == stream and other != port),
            Side(),
        )
        if flags & RST:
            count += (
                not flags & ACK
                and here.is_second
                and here.end in there.acked
                and seq in there.acked
            )
            continue
        if flags & FIN and here.end is None:
            here.end = (seq + length + 1) % 2**32
            here.is_second = there.end is not None and (ack == there.end or there.end in here.acked)
        if flags & ACK:
            here.acked.add(ack)
    return count


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

"""A stack under test: a puppet on it, and the peer's end of its wire."""

import json
import socket
import subprocess
from pathlib import Path

from harness.process import until
from harness.world import PYTHON, World
from scripts import ACK, FIN, PEER_ISS, RST, SYN, Call, Segment
from wire import ADDRESS, Wire

FOLDER = Path(__file__).resolve().parent
# A sequence has a port of its own for ever: no TIME-WAIT of one meets another.
PORTS = range(2_000, 30_000)


class Target:
    def __init__(self, mode):
        self.mode = mode
        self.world = World(mode)
        self.ports = iter(PORTS)
        try:
            self._start()
        except BaseException:
            self.world.remove()
            raise

    def _start(self):
        world = self.world
        for namespace in (world.stack_ns, world.peer_ns):
            words = [*namespace.prefix(), "ethtool", "-K", "eth1", "tx", "off", "tso", "off", "gso", "off"]
            subprocess.run(words, check=True, capture_output=True)
        path = world.folder / "master"
        puppet = world.stack(PYTHON, "-u", FOLDER / "puppet.py", path)
        until(lambda: path.exists() or not puppet.is_running(), 10, "the puppet is there")
        self.master = socket.socket(socket.AF_UNIX)
        self.master.settimeout(30)
        until(lambda: self._reach(path), 10, f"the puppet listens\n{puppet.tail()}")
        self.answers = self.master.makefile()
        self.wire = Wire(world.peer_ns, "eth1", world.address)
        self.wire.learn(5)
        self._warm_up()

    def _warm_up(self):
        """A stack begins with its first socket; the sequences are to meet it at work."""
        port = next(self.ports)
        self._call([[port, "listen", self.world.address, port, 1], [port, "accept"]])
        run = Run(None, port, self.world.address)
        until(lambda: self._probe(run), 10, "the stack answers")
        self._call([[port, "close", "listener"]])

    def _probe(self, run):
        self.wire.send(Segment(SYN, 0, 0, 0, 65535), run.port, run.peer_port, 0)
        return any(segment.port == run.port for segment in self.wire.collect(0.2))

    def _reach(self, path):
        try:
            self.master.connect(str(path))
            return True
        except (ConnectionRefusedError, FileNotFoundError):
            return False

    def run(self, scripts, pause):
        """Runs the scripts side by side, step by step; gives each one's outcomes, step by step."""
        runs = [Run(script, next(self.ports), self.world.address) for script in scripts]
        by_port = {run.port: run for run in runs}
        for at in range(max(len(script.steps) for script in scripts)):
            now = [run for run in runs if at < len(run.script.steps)]
            calls = [run for run in now if isinstance(run.script.steps[at], Call)]
            answers = self._call([run.call(at) for run in calls])
            for run in now:
                if run not in calls:
                    self.wire.send(run.script.steps[at], run.port, run.peer_port, run.target_iss)
            seen = self.wire.collect(pause)
            said = {run.port: answer for run, answer in zip(calls, answers)}
            for segment in seen:
                if segment.port in by_port:
                    by_port[segment.port].take(segment)
            for run in now:
                run.end_step(said.get(run.port), run not in calls)
        self._call([[run.port, "close", which] for run in runs for which in ("stream", "listener")])
        return [run.outcomes for run in runs]

    def _call(self, calls):
        if not calls:
            return []
        self.master.sendall(json.dumps(calls).encode() + b"\n")
        return json.loads(self.answers.readline())

    def close(self):
        self.master.close()
        self.world.finish()
        self.world.remove()


class Run:
    """One script on one stack."""

    def __init__(self, script, port, address):
        self.script = script
        self.port = port
        self.peer_port = port + 30_000
        self.address = address
        self.target_iss = 0
        self.fresh = []
        # Ends of what the target has sent: what it sends again says nothing new.
        self.sent_to = -1
        self.outcomes = []

    def call(self, at):
        step = self.script.steps[at]
        words = step.words
        if step.name == "listen":
            words = (self.address, self.port, *words)
        elif step.name == "connect":
            words = (self.address, self.port, ADDRESS, self.peer_port)
        return [self.port, step.name, *words]

    def take(self, segment):
        if segment.flags & SYN:
            self.target_iss = segment.seq
        self.fresh.append(segment)

    def end_step(self, answer, is_answer):
        """`is_answer`: the peer has sent something, so that even what was seen before may be the answer."""
        seen = []
        for segment in self.fresh:
            text, end = relative(segment, self.target_iss)
            is_handshake = is_answer and segment.flags & SYN
            is_again = end is not None and end <= self.sent_to and not is_handshake
            if end is not None:
                self.sent_to = max(self.sent_to, end)
            if not is_again and text not in seen:
                seen.append(text)
        self.fresh = []
        self.outcomes.append((answer, tuple(seen)))


def relative(segment, iss):
    """The segment in relative numbers, and where its sequence space ends if it takes any."""
    flags = [name for bit, name in ((SYN, "SYN"), (FIN, "FIN"), (RST, "RST"), (ACK, "ACK")) if segment.flags & bit]
    seq = signed(segment.seq - iss)
    ack = signed(segment.ack - PEER_ISS) if segment.flags & ACK else 0
    space = segment.length + bool(segment.flags & SYN) + bool(segment.flags & FIN)
    text = f"> {'|'.join(flags)} seq {seq} ack {ack} len {segment.length}"
    if segment.flags & SYN:
        text += f" options {segment.options}"
    return text, seq + space if space else None


def signed(number):
    number %= 2**32
    return number - 2**32 if number >= 2**31 else number

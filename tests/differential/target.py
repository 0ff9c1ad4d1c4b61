"""A stack under test: a puppet on it, and the peer's end of its wire."""

import json
import socket
import struct
import subprocess
from pathlib import Path

from harness.process import until
from harness.world import PYTHON, World
from packets import TCP
from steps import Call
from tcp_run import TcpRun
from tcp_script import SYN, Segment
from udp_run import UdpRun
from wire import Wire

FOLDER = Path(__file__).resolve().parent
# A sequence never shares its ports with another, so that no TIME-WAIT of one meets another.
PORTS = range(2_000, 30_000)
# The steps of a handshake are longer: timeouts, which are multiples of its round trip, then fall
# between the others.
HANDSHAKE = 3
LONGER = 7 / 6
RUNS = {"tcp": TcpRun, "udp": UdpRun}


class Target:
    def __init__(self, mode, interfaces=1):
        self.mode, self.interfaces = mode, interfaces
        self.world = World(mode)
        self.port = PORTS.start
        try:
            self._start()
        except BaseException:
            self.world.remove()
            raise

    def _start(self):
        world = self.world
        for namespace in (world.stack_ns, world.peer_ns):
            words = [
                *namespace.prefix(),
                "ethtool",
                "-K",
                "eth1",
                "tx",
                "off",
                "tso",
                "off",
                "gso",
                "off",
            ]
            subprocess.run(words, check=True, capture_output=True)
        world.use_ipv6()
        if self.interfaces == 2:
            world.use_second_pair()
        # The gateway sends no errors of its own about packets to peers behind it.
        world.peer_ns.ip("-6", "route", "add", "blackhole", "fd00:99::/64")
        if self.mode == "kernel":
            # Metrics that one sequence learns about the peer must not change the timing of the
            # next.
            world.stack_ns.sysctl("net.ipv4.tcp_no_metrics_save", 1)
            world.stack_ns.ip("-6", "route", "add", "default", "via", world.PEER6)
        self.addresses = (world.address, world.STACK6)
        path = world.folder / "master"
        puppet = self.puppet = self._puppet(path)
        until(lambda: path.exists() or not puppet.is_running(), 10, "the puppet is there")
        self.master = socket.socket(socket.AF_UNIX)
        self.master.settimeout(30)
        until(lambda: self._reach(path), 10, f"the puppet listens\n{puppet.tail()}")
        self.answers = self.master.makefile()
        self.wire = Wire(world.peer_ns, "eth1", self.addresses)
        self.wire.learn(5)
        self._warm_up()

    def _puppet(self, path):
        # A gateway would be that of the last interface.
        world, gateway = self.world, ("--route", f"::/0,via={World.PEER6}")
        if self.mode == "instance":
            world.instance = world.start_instance("t", *gateway)
        return world.stack(
            PYTHON,
            "-u",
            FOLDER / "puppet.py",
            path,
            options=gateway if self.mode == "inprocess" else (),
        )

    def _warm_up(self):
        """A stack begins with its first socket; the sequences are to meet it at work."""
        run = TcpRun(None, self._next_port(1), self.addresses)
        self._call([[run.port, "listen", run.address, run.port, 1], [run.port, "accept"]])
        until(lambda: self._probe(run), 10, "the stack answers")
        self._call(run.last_calls())

    def _probe(self, run):
        self.wire.send(run.built(Segment(SYN, 0, 0, 0, 65535)))
        return any(port_at_peer(packet) == run.peer_port for packet in self.wire.collect(0.2))

    def _next_port(self, count):
        port = self.port
        self.port += count
        assert self.port <= PORTS.stop, "no port is left for another sequence"
        return port

    def _reach(self, path):
        try:
            self.master.connect(str(path))
            return True
        except (ConnectionRefusedError, FileNotFoundError):
            return False

    def run(self, scripts, pause):
        """Runs the scripts side by side, step by step; returns the outcomes of each, step by
        step."""
        kinds = [RUNS[script.protocol] for script in scripts]
        runs = [
            kind(script, self._next_port(kind.PORTS), self.addresses)
            for kind, script in zip(kinds, scripts)
        ]
        by_key = {key: run for run in runs for key in run.keys}
        for at in range(max(len(script.steps) for script in scripts)):
            now = [run for run in runs if at < len(run.script.steps)]
            calls = [run for run in now if isinstance(run.script.steps[at], Call)]
            answers = self._call([run.call(at) for run in calls])
            for run in now:
                if run not in calls:
                    for packet in run.packets(at):
                        self.wire.send(packet)
            for packet in self.wire.collect(pause * LONGER if at < HANDSHAKE else pause):
                run = by_key.get(packet.dst) or by_key.get(port_at_peer(packet))
                if run:
                    run.take(packet)
            said = {run.port: answer for run, answer in zip(calls, answers)}
            for run in now:
                run.end_step(said.get(run.port), run not in calls)
        self._call([call for run in runs for call in run.last_calls()])
        return [run.outcomes for run in runs]

    def _call(self, calls):
        if not calls:
            return []
        self.master.sendall(json.dumps(calls).encode() + b"\n")
        answers = self.answers.readline()
        assert answers, f"the puppet on {self.mode} has ended\n{self.puppet.tail()}"
        return json.loads(answers)

    def close(self):
        self.master.close()
        self.world.finish()
        self.world.remove()


def port_at_peer(packet):
    """For segments only; the other entries name their address."""
    return (
        struct.unpack("!H", packet.body[2:4])[0]
        if packet.protocol == TCP and packet.offset == 0
        else None
    )

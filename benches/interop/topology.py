"""Two hosts and the wire between them: three namespaces, two veth pairs, slipstack-link in the
middle."""

import pathlib
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "programs"))

from harness import net  # noqa: E402
from harness.process import Process, until  # noqa: E402

# In each host's namespace both stacks live on one interface, each with its own address.
ADDRESSES = {
    "sender": {"kernel": "10.98.0.1", "ours": "10.98.0.2"},
    "receiver": {"kernel": "10.98.0.3", "ours": "10.98.0.4"},
}
# What one run learnt of the path must not help the next.
SYSCTLS = {"net.ipv4.tcp_no_metrics_save": 1}
OFFLOADS = [word for name in ("tso", "gso", "gro", "tx", "rx") for word in (name, "off")]


class Topology:
    """with Topology(target) as topology: … Nothing is left when it ends, however that is."""

    def __init__(self, target):
        self.slipstack, self.link = str(target / "slipstack"), str(target / "slipstack-link")
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="ss-interop-"))
        self.namespaces, self.processes = {}, []
        self.number = 0

    def __enter__(self):
        try:
            for role in ("sender", "receiver", "wire"):
                name = f"ss-{self.folder.name.removeprefix('ss-interop-')}-{role[0]}"
                self.namespaces[role] = net.Namespace(name)
            for role in ("sender", "receiver"):
                self.join(role)
        except BaseException:
            self.__exit__()
            raise
        return self

    def join(self, role):
        host, wire = self.namespaces[role], self.namespaces["wire"]
        host.ip("link", "add", "eth1", "type", "veth", "peer", "name", role, "netns", wire.name)
        for side, name in ((host, "eth1"), (wire, role)):
            side.sysctl(f"net.ipv6.conf.{name}.disable_ipv6", 1)
            side.ip("link", "set", name, "up")
        done = subprocess.run(
            [*host.prefix(), "ethtool", "-K", "eth1", *OFFLOADS], capture_output=True, text=True
        )
        if done.returncode != 0:
            raise RuntimeError(f"ethtool: {done.stderr.strip()}")
        host.ip("addr", "add", f"{ADDRESSES[role]['kernel']}/24", "dev", "eth1")
        for name, value in SYSCTLS.items():
            host.sysctl(name, value)

    def __exit__(self, *_):
        for process in reversed(self.processes):
            self.stop(process)
        for namespace in self.namespaces.values():
            # Keepers leave by themselves when their last program has.
            namespace.wait_empty(3)
            namespace.remove()
        shutil.rmtree(self.folder, ignore_errors=True)

    def start(self, role, words):
        # A folder for each process: a long run must not look through all of their outputs.
        self.number += 1
        folder = self.folder / str(self.number)
        folder.mkdir()
        process = Process([*self.namespaces[role].prefix(), *words], folder)
        self.processes.append(process)
        return process

    def stop(self, process):
        try:
            process.stop(5)
        except AssertionError:
            process.kill()
        if process in self.processes:
            self.processes.remove(process)

    def start_link(self, words, data_words, report, pcap=None):
        """The data flows from the sender's side (left) to the receiver's (right)."""
        extra = [f"--to-right={word}" for word in data_words]
        extra += ["--pcap", str(pcap)] if pcap else []
        # Before everything else on the machine: what is measured must be the wire, not the waiting
        # for a core.
        link = self.start(
            "wire",
            [
                "chrt",
                "--fifo",
                "10",
                self.link,
                "sender",
                "receiver",
                *words,
                *extra,
                "--report",
                str(report),
            ],
        )
        until(lambda: "joined" in link.errors() or not link.is_running(), 5, "the link is up")
        if not link.is_running():
            raise RuntimeError(f"slipstack-link: {link.errors().strip()}")
        return link

    def start_program(self, role, stack, words):
        """A program on one of the two stacks of a host."""
        if stack == "ours":
            address = ADDRESSES[role]["ours"]
            run_dir = self.folder / f"run-{role}"
            run_dir.mkdir(exist_ok=True)
            words = [
                self.slipstack,
                "run",
                "--run-dir",
                str(run_dir),
                "--if",
                "eth1",
                "--ip",
                f"{address}/24",
                "--",
                *words,
            ]
        return self.start(role, words)

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

# In each host's namespace both stacks live on the same interfaces, each with its own addresses.
HOSTS = {
    "sender": {"kernel": 1, "ours": 2},
    "receiver": {"kernel": 3, "ours": 4},
}
VLAN = 7
# How the hosts meet → the interfaces of that, each with the network of its addresses.
MEETINGS = {
    "plain": {"eth1": "10.98.0"},
    "vlan": {"eth1": "10.98.7"},
    "two": {"eth1": "10.98.0", "eth2": "10.98.1"},
}
# What one run learnt of the path must not help the next.
SYSCTLS = {"net.ipv4.tcp_no_metrics_save": 1}
OFFLOADS = [word for name in ("tso", "gso", "gro", "tx", "rx") for word in (name, "off")]


def wire_end(role, name):
    """The other end of a host's interface."""
    return f"{role}{name.removeprefix('eth')}"


def addresses(role, stack, layout):
    """Those of a stack of a host, interface by interface."""
    return {name: f"{network}.{HOSTS[role][stack]}" for name, network in MEETINGS[layout].items()}


def network_options(role, layout):
    """Which interfaces and addresses Slipstack has there."""
    words = []
    for name, address in addresses(role, "ours", layout).items():
        words += ["--if", name]
        is_tagged = layout == "vlan"
        words += ["--vlan", f"{VLAN},ip={address}/24"] if is_tagged else ["--ip", f"{address}/24"]
    return words


def access_options(layout, sender, receiver):
    """In a VLAN our stack has a trunk, the kernel the access port of a switch: not every kernel
    knows VLANs."""
    stacks = {"left": sender, "right": receiver}
    kernels = [side for side, stack in stacks.items() if stack == "kernel" and layout == "vlan"]
    return [f"--{side}-access={VLAN}" for side in kernels]


class Topology:
    """with Topology(target) as topology: … Nothing is left when it ends, however that is."""

    def __init__(self, target):
        self.slipstack, self.link = str(target / "slipstack"), str(target / "slipstack-link")
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="ss-interop-"))
        self.namespaces, self.processes = {}, []
        # Folder of a host's keeper → the layout that it has begun with.
        self.layouts = {}
        self.number = 0

    def __enter__(self):
        try:
            for role in ("sender", "receiver", "wire"):
                name = f"ss-{self.folder.name.removeprefix('ss-interop-')}-{role[0]}"
                self.namespaces[role] = net.Namespace(name)
            for role in ("sender", "receiver"):
                for name in ("eth1", "eth2"):
                    self.join(role, name)
                self.add_kernel_addresses(role)
        except BaseException:
            self.__exit__()
            raise
        return self

    def join(self, role, name):
        host, wire = self.namespaces[role], self.namespaces["wire"]
        end = wire_end(role, name)
        host.ip("link", "add", name, "type", "veth", "peer", "name", end, "netns", wire.name)
        for side, side_name in ((host, name), (wire, end)):
            side.sysctl(f"net.ipv6.conf.{side_name}.disable_ipv6", 1)
            side.ip("link", "set", side_name, "up")
        done = subprocess.run(
            [*host.prefix(), "ethtool", "-K", name, *OFFLOADS], capture_output=True, text=True
        )
        if done.returncode != 0:
            raise RuntimeError(f"ethtool: {done.stderr.strip()}")

    def add_kernel_addresses(self, role):
        host = self.namespaces[role]
        for layout in ("vlan", "two"):
            for name, address in addresses(role, "kernel", layout).items():
                host.ip("addr", "add", f"{address}/24", "dev", name)
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

    def start_link(self, words, data_words, report, number=0, pcap=None):
        """The data flows from the sender's side (left) to the receiver's (right). `number`: which
        of their interfaces is joined."""
        extra = [f"--to-right={word}" for word in data_words]
        extra += ["--pcap", str(pcap)] if pcap else []
        name = f"eth{number + 1}"
        ends = [wire_end(role, name) for role in ("sender", "receiver")]
        # Before everything else on the machine: what is measured must be the wire, not the waiting
        # for a core.
        link = self.start(
            "wire",
            ["chrt", "--fifo", "10", self.link, *ends, *words, *extra, "--report", str(report)],
        )
        until(lambda: "joined" in link.errors() or not link.is_running(), 5, "the link is up")
        if not link.is_running():
            raise RuntimeError(f"slipstack-link: {link.errors().strip()}")
        return link

    def start_program(self, role, stack, layout, words):
        """A program on one of the two stacks of a host."""
        if stack == "ours":
            run_dir = self.folder / f"run-{role}"
            run_dir.mkdir(exist_ok=True)
            # A keeper of another layout leaves by itself.
            until(lambda: self.is_free(run_dir, layout), 10, "the interfaces are free")
            options = ["--run-dir", str(run_dir), *network_options(role, layout)]
            words = [self.slipstack, "run", *options, "--", *words]
        return self.start(role, words)

    def is_free(self, run_dir, layout):
        """No keeper of another layout has the interfaces."""
        kept = self.layouts.setdefault(run_dir, layout)
        if kept == layout or not any(run_dir.glob("*/control")):
            self.layouts[run_dir] = layout
            return True
        return False

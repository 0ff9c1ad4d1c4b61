"""Two network namespaces joined by a veth pair: the server's on core 0, the client's on core 1."""

import json
import os
import subprocess
import time

SERVER_CORE = "0"
CLIENT_CORE = "1"
KERNEL_SERVER = "10.99.0.1"
STACK_SERVER = "10.99.0.2"
KERNEL_CLIENT = "10.99.0.3"
STACK_CLIENT = "10.99.0.4"
NETWORK = "10.99.0.0/24"


def sh(*argv, check=True):
    return subprocess.run(argv, check=check, capture_output=True, text=True)


class Topology:
    """Makes the namespaces, ends what was started in them, removes them."""

    def __init__(self, congestion):
        self.congestion = congestion
        tag = f"ss-bench-{os.getpid()}"
        self.server_ns = f"{tag}-s"
        self.client_ns = f"{tag}-c"
        self.started = []

    def __enter__(self):
        try:
            self.make()
        except BaseException:
            self.__exit__()
            raise
        return self

    def make(self):
        for ns in (self.server_ns, self.client_ns):
            sh("ip", "netns", "add", ns)
            sh("ip", "-n", ns, "link", "set", "lo", "up")
        # A client that closes first keeps its port for a minute: tens of thousands of connections a
        # second would soon measure nothing but its search for a free one.
        for setting in ("ip_local_port_range=1024 65535", "tcp_max_tw_buckets=1024"):
            sh("ip", "netns", "exec", self.client_ns, "sysctl", "-qw", f"net.ipv4.{setting}")
        sh(
            "ip",
            "link",
            "add",
            "vs",
            "netns",
            self.server_ns,
            "type",
            "veth",
            "peer",
            "name",
            "vc",
            "netns",
            self.client_ns,
        )
        for ns, dev, addr in (
            (self.server_ns, "vs", KERNEL_SERVER),
            (self.client_ns, "vc", KERNEL_CLIENT),
        ):
            sh("ip", "-n", ns, "addr", "add", f"{addr}/24", "dev", dev)
            sh("ip", "-n", ns, "link", "set", dev, "up")
            # A namespace has the machine's, which need not be what Slipstack uses, and may be kept
            # from changing it; a route may not.
            sh(
                "ip",
                "-n",
                ns,
                "route",
                "replace",
                NETWORK,
                "dev",
                dev,
                "src",
                addr,
                "congctl",
                self.congestion,
            )

    def __exit__(self, *_):
        while self.started:
            self.stop(self.started[-1])
        for ns in (self.server_ns, self.client_ns):
            self.wait_empty(ns, 3.0)
            for pid in sh("ip", "netns", "pids", ns, check=False).stdout.split():
                sh("kill", "-9", pid, check=False)
            sh("ip", "netns", "del", ns, check=False)

    @staticmethod
    def wait_empty(ns, seconds):
        """Keepers leave by themselves when their last program has."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            if not sh("ip", "netns", "pids", ns, check=False).stdout.split():
                return
            time.sleep(0.1)

    def command(self, ns, core, argv):
        return ["ip", "netns", "exec", ns, "taskset", "-c", core, *argv]

    def frames(self):
        """Frames that crossed the pair so far, both ways; a large one counts once."""
        shown = sh("ip", "-n", self.server_ns, "-s", "-j", "link", "show", "vs").stdout
        stats = json.loads(shown)[0]["stats64"]
        return stats["rx"]["packets"] + stats["tx"]["packets"]

    def start(self, ns, core, argv, log):
        out = open(log, "a")
        process = subprocess.Popen(
            self.command(ns, core, argv), stdin=subprocess.DEVNULL, stdout=out, stderr=out
        )
        self.started.append(process)
        return process

    def stop(self, process):
        if process in self.started:
            self.started.remove(process)
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def start_client(self, argv, ns):
        process = subprocess.Popen(
            self.command(ns, CLIENT_CORE, argv),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.started.append(process)
        return process

    def run(self, ns, core, argv, timeout):
        return subprocess.run(
            self.command(ns, core, argv), capture_output=True, text=True, timeout=timeout
        )

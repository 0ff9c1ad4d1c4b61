"""Network namespaces and the pairs between them. Everything is named ss-PID-… and owned by one
test."""

import contextlib
import ctypes
import os
import signal
import subprocess
import threading
import time

LIBC = ctypes.CDLL(None, use_errno=True)
CLONE_NEWNET = 0x40000000


def command(*words, check=True):
    done = subprocess.run(words, capture_output=True, text=True)
    if check and done.returncode != 0:
        raise RuntimeError(f"{' '.join(words)}: {done.stderr.strip()}")
    return done.stdout


class Namespace:
    def __init__(self, name):
        self.name = name
        self.path = f"/run/netns/{name}"
        command("ip", "netns", "add", name)
        self.ip("link", "set", "lo", "up")

    def ip(self, *words, check=True):
        return command("ip", "-n", self.name, *words, check=check)

    def prefix(self):
        """The command prefix that runs a command in this namespace (nsenter execs: the pid
        stays)."""
        return ["nsenter", f"--net={self.path}", "--"]

    def sysctl(self, name, value):
        with self.inside():
            with open("/proc/sys/" + name.replace(".", "/"), "w") as file:
                file.write(str(value))

    @contextlib.contextmanager
    def inside(self):
        """This thread's new sockets belong to the namespace."""
        before = os.open(f"/proc/self/task/{threading.get_native_id()}/ns/net", os.O_RDONLY)
        here = os.open(self.path, os.O_RDONLY)
        try:
            _setns(here)
            yield
        finally:
            _setns(before)
            os.close(before)
            os.close(here)

    def pids(self):
        if not os.path.exists(self.path):
            return []
        own = os.getpid()
        return [
            pid for pid in map(int, command("ip", "netns", "pids", self.name).split()) if pid != own
        ]

    def wait_empty(self, seconds):
        end = time.monotonic() + seconds
        while self.pids() and time.monotonic() < end:
            time.sleep(0.02)
        return self.pids()

    def remove(self):
        for _ in range(50):
            pids = self.pids()
            if not pids:
                break
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.02)
        command("ip", "netns", "del", self.name, check=False)


def _setns(fd):
    if LIBC.setns(fd, CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "setns")


def join(left, right, name="eth1"):
    """A veth pair, called `name` at both ends."""
    left.ip("link", "add", name, "type", "veth", "peer", "name", name, "netns", right.name)
    for side in (left, right):
        side.sysctl(f"net.ipv6.conf.{name}.disable_ipv6", 1)
        side.ip("link", "set", name, "up")

"""DPDK's testpmd as a switch between two ports."""

import shutil
import socket

from .process import until
from .registry import Skip

PROMPT = "testpmd> "


def is_linked(world, path):
    """Returns whether a keeper has said that its memif link at this socket is up."""
    told = f'connected at "{path}"'
    return any(told in log.read_text() for log in world.run_dir.glob("*/log"))


class Testpmd:
    """Passes frames on between its ports from `start` to `stop`.

    DPDK's memif driver (22.11) makes and ends links in one thread and reads its rings in another,
    which takes a ring's address before it looks whether the link is up: it may die by SIGSEGV of a
    link that comes up or goes down while it forwards. So links do either while it is stopped."""

    def __init__(self, world, namespace, devices, queues=1):
        if shutil.which("dpdk-testpmd") is None:
            raise Skip("dpdk-testpmd is not installed (Debian: dpdk-dev)")
        words = ["dpdk-testpmd", "-l", "0,1", "--no-huge", "-m", "128", "--no-pci"]
        words += ["--no-telemetry", f"--file-prefix={world.folder.name}"]
        words += [f"--vdev={device}" for device in devices]
        words += ["--", "-i", "--forward-mode=io", "--total-num-mbufs=8192"]
        words += [f"--rxq={queues}", f"--txq={queues}"]
        self.input, there = socket.socketpair()
        with there:
            self.process = world.process([*namespace.prefix(), *words], stdin=there)
        self._wait_for_prompts(1)

    def _prompts(self):
        return self.process.output().count(PROMPT)

    def _wait_for_prompts(self, count):
        until(
            lambda: self._prompts() >= count or not self.process.is_running(),
            20,
            "testpmd has done what it was asked for",
        )
        assert self.process.is_running(), self.process.tail()

    def _do(self, command):
        before = self._prompts()
        self.input.sendall(f"{command}\n".encode())
        self._wait_for_prompts(before + 1)

    def start(self):
        self._do("start")

    def stop(self):
        self._do("stop")

    def __enter__(self):
        return self

    def __exit__(self, failure, *_):
        with self.input:
            self.input.sendall(b"quit\n")
        if failure is None:
            assert self.process.wait(20) == 0, self.process.tail()

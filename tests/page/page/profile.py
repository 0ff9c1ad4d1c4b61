"""Whose processor time a measured rate costs: samples of all processors, told apart by process and
by the functions of the kernel that they are in."""

import contextlib
import os
import re
import signal
import subprocess
import time
from collections import Counter

from harness.process import until

FREQUENCY = 1999
# The parts of a request's time.
CLIENT = "client"
PROGRAM = "program"
OURS = "slipstack"
WAITING = "waiting and waking"
DEVICE = "device"
SOCKETS = "kernel's sockets"
REST = "program in the kernel"
PARTS = (CLIENT, PROGRAM, OURS, WAITING, DEVICE, SOCKETS, REST)

RECEIVING = re.compile(r"__netif_receive_skb|process_backlog|net_rx_action|__napi_poll")
LOCAL = re.compile(r"(ip|ipv6|ip6)_(rcv|local_deliver|input)|(tcp|udp)_?v?[46]?_.*rcv|ip_list_rcv")
OF_DEVICE = re.compile(
    r"^(packet_|tpacket_|xsk_|__xsk|veth_|__dev_queue_xmit|dev_hard_start|__dev_direct_xmit|"
    r"sch_direct|sock_wfree|skb_|sock_alloc_send|kfree_skb|consume_skb|netif_)"
)
WAKES = re.compile(r"^(sock_def_readable|ep_poll_callback)")
OF_SLEEPS = re.compile(r"^(__schedule|schedule|try_to_wake_up|futex_|eventfd_)")
OF_WAITS = re.compile(
    r"^(__?schedule$|schedule|try_to_wake_up|.*futex|.*eventfd|.*epoll|ep_|do_sys_poll|do_poll|"
    r".*select|.*nanosleep|wake_up|__wake_up|.*signalfd|.*timerfd|hrtimer_)"
)
OF_SOCKETS = re.compile(
    r"^(tcp_|udp_|inet_|inet6_|sock_|__sys_(send|recv|accept|connect|shutdown)|ip_|__ip_|ip6_|"
    r"___?sys_(send|recv)|sockfs|__sock|__tcp|__udp|tcp4|unix_)"
)
HEAD = re.compile(r"^(.{0,16}?)\s+(\d+)/(\d+)\s*$")
FORK = re.compile(r"PERF_RECORD_FORK\((\d+):(\d+)\):\((\d+):(\d+)\)")
FRAME = re.compile(r"^\s+([0-9a-f]+) (.*) \((.*)\)$")


class Sides:
    """Which process is whose. A child is on the side of its parent."""

    def __init__(self, clients, servers, ours):
        self.side = {pid: CLIENT for pid in clients}
        self.side.update({pid: PROGRAM for pid in servers})
        self.side.update({pid: OURS for pid in ours})

    def on_fork(self, parent, child):
        """A process is on its parent's side; perf also names those that were there before."""
        if parent in self.side:
            self.side.setdefault(child, self.side[parent])

    def of(self, pid):
        return self.side.get(pid)


def part(side, frames, is_kernel_run):
    """The part that a sample belongs to; None if it is nobody's. `side`: of its process; `frames`:
    pairs of a function and a file, innermost first."""
    functions = [name for name, file in frames if is_kernel(file)]
    if any(RECEIVING.search(name) for name in functions):
        return received(side, functions, is_kernel_run)
    if side in (None, CLIENT):
        return side
    if not functions or not is_kernel(frames[0][1]):
        is_ours = side == OURS or (frames and "libslipstack" in frames[0][1])
        return OURS if is_ours else PROGRAM
    patterns = [(OF_SOCKETS, SOCKETS)] if is_kernel_run else [(OF_DEVICE, DEVICE)]
    # A sleep in a call of a socket is a wait.
    for pattern, name in ((OF_SLEEPS, WAITING), *patterns, (OF_WAITS, WAITING)):
        if any(pattern.search(function) for function in functions):
            return name
    return DEVICE if side == OURS else REST


def received(side, functions, is_kernel_run):
    """The part of a frame's receipt, which the kernel does in the process that sent it."""
    if side == CLIENT and any(WAKES.search(name) for name in functions):
        return WAITING
    if not any(LOCAL.search(name) for name in functions):
        return DEVICE if side else None
    if not is_kernel_run:
        # Only the client's end has the kernel's TCP.
        return CLIENT if side else None
    return {CLIENT: SOCKETS, PROGRAM: CLIENT}.get(side)


def is_kernel(file):
    """Whether the file of a function is the kernel or one of its modules."""
    return file.startswith("[") and file not in ("[vdso]", "[unknown]", "[heap]", "[stack]")


def samples(lines):
    """Yields ("fork", parent, child) and ("sample", pid, frames) of `perf script`'s lines."""
    pid, frames = None, []
    for line in lines:
        forked = FORK.search(line)
        if forked:
            yield "fork", int(forked[3]), int(forked[1])
            continue
        head = HEAD.match(line)
        if head:
            if pid is not None:
                yield "sample", pid, frames
            pid, frames = int(head[2]), []
            continue
        frame = FRAME.match(line)
        if frame:
            frames.append((frame[2].partition("+")[0], frame[3]))
    if pid is not None:
        yield "sample", pid, frames


def attribute(lines, sides, is_kernel_run):
    """Counts samples by part."""
    counted = Counter()
    for kind, first, second in samples(lines):
        if kind == "fork":
            sides.on_fork(first, second)
            continue
        found = part(sides.of(first), second, is_kernel_run)
        if found:
            counted[found] += 1
    return counted


class Profile:
    """Records while `observed` runs; `result` is what came of it."""

    def __init__(self):
        self.result = None

    @contextlib.contextmanager
    def observed(self, world):
        data = world.folder / "perf.data"
        servers = set(world.stack_ns.pids())
        ours = {pid for pid in servers if is_slipstack(pid)}
        clients = {os.getpid(), *world.peer_ns.pids()}
        words = ["perf", "record", "-q", "-e", "cpu-clock", "-F", str(FREQUENCY), "-a", "-g"]
        perf = subprocess.Popen(
            [*words, "-o", data], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            until(lambda: data.exists() and data.stat().st_size, 10, "perf records")
            time.sleep(0.3)
            started = time.monotonic()
            yield
            elapsed = time.monotonic() - started
        finally:
            perf.send_signal(signal.SIGINT)
            perf.wait(20)
        sides = Sides(clients, servers - ours, ours)
        sides.side[perf.pid] = None
        self.result = {"seconds": elapsed, "parts": self.parts(data, sides, world.mode)}

    @staticmethod
    def parts(data, sides, mode):
        """Processor seconds of each part."""
        words = ["perf", "script", "-i", data, "--show-task-events"]
        words += ["-F", "comm,pid,tid,ip,sym,dso"]
        script = subprocess.Popen(
            words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, errors="replace"
        )
        counted = attribute(script.stdout, sides, mode == "kernel")
        script.wait()
        return {name: counted[name] / FREQUENCY for name in PARTS}


def is_slipstack(pid):
    try:
        return os.path.basename(os.readlink(f"/proc/{pid}/exe")) == "slipstack"
    except OSError:
        return False

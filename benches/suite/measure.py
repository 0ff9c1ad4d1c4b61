"""Processor time of the whole machine and memory of processes, from /proc."""

import os

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
CORES = ("cpu0", "cpu1")
# Columns of a cpu line (proc(5)): user nice system idle iowait irq softirq steal. Nothing that is
# measured runs niced, so other people's niced work counts as idle.
IDLE_COLUMNS = (1, 3, 4)


def snapshot():
    """core → (idle ticks, all ticks)"""
    seen = {}
    with open("/proc/stat") as stat:
        for line in stat:
            name, *rest = line.split()
            if name in CORES:
                ticks = [int(word) for word in rest[:8]]
                seen[name] = (sum(ticks[c] for c in IDLE_COLUMNS), sum(ticks))
    return seen


class Cpu:
    """with Cpu() as cpu: …; cpu.busy_s, cpu.idle_share"""

    def __enter__(self):
        self.before = snapshot()
        return self

    def __exit__(self, *_):
        after = snapshot()
        busy = 0
        self.idle_share = {}
        for core in CORES:
            idle = after[core][0] - self.before[core][0]
            total = after[core][1] - self.before[core][1]
            self.idle_share[core] = idle / total if total else 0.0
            busy += total - idle
        self.busy_s = busy / TICKS_PER_SECOND


def children_of(pid):
    found = [pid]
    for other in os.listdir("/proc"):
        if not other.isdigit():
            continue
        try:
            with open(f"/proc/{other}/stat") as stat:
                parent = int(stat.read().rsplit(")", 1)[1].split()[1])
        except OSError:
            continue
        if parent == pid:
            found += children_of(int(other))
    return found


def resident_kib(pids):
    """Proportional set size, so that shared rings count once."""
    total = 0
    for pid in pids:
        try:
            with open(f"/proc/{pid}/smaps_rollup") as rollup:
                total += sum(int(line.split()[1]) for line in rollup if line.startswith("Pss:"))
        except OSError:
            continue
    return total

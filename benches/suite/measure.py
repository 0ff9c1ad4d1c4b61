"""Processor time of the whole machine and memory of processes, from /proc."""

import os
import time

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
CORES = ("cpu0", "cpu1")
# Columns of a cpu line (proc(5)): user nice system idle iowait irq softirq steal. Idle is measured
# by the clock. The others are samples of the kernel's tick, which comes in step with the load's own
# and with every nap: they see one moment of each period again and again, and were wrong by a third
# either way. So what is not idle was busy. Not so what the host took away and what runs niced,
# which is no part of what is measured.
UNUSED_COLUMNS = (1, 3, 4, 7)


def snapshot():
    """→ (when, core → ticks that the core was idle or not ours)"""
    seen = {}
    with open("/proc/stat") as stat:
        now = time.monotonic()
        for line in stat:
            name, *rest = line.split()
            if name in CORES:
                seen[name] = sum(int(rest[column]) for column in UNUSED_COLUMNS)
    return now, seen


class Cpu:
    """with Cpu() as cpu: …; cpu.seconds, cpu.cores (how many were busy), cpu.idle_share"""

    def __enter__(self):
        self.before = snapshot()
        return self

    def __exit__(self, *_):
        (begun, before), (ended, after) = self.before, snapshot()
        self.seconds = ended - begun
        self.idle_share = {
            core: (after[core] - before[core]) / TICKS_PER_SECOND / self.seconds for core in CORES
        }
        self.cores = sum(1 - idle for idle in self.idle_share.values())


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

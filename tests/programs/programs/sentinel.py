"""Sleeps 4 ms at a time on one core, and says when it should have woken and when it did.
Usage: sentinel.py SECONDS FILE SLICE_NS
What it is late by is what the machine takes from whoever sleeps on that core."""

import ctypes
import os
import platform
import struct
import sys
import time

PERIOD_S = 0.004
SYS_SCHED_SETATTR = {"x86_64": 314, "aarch64": 274}[platform.machine()]


def shorten_slice(slice_ns):
    """What a thread may ask for that wants to run at once and shortly; older kernels take no
    notice."""
    attr = struct.pack("IIQiIQQQ", 48, 0, 0, os.nice(0), 0, slice_ns, 0, 0)
    ctypes.CDLL(None).syscall(SYS_SCHED_SETATTR, 0, attr, 0)


shorten_slice(int(sys.argv[3]))
clock = time.CLOCK_REALTIME
end = time.clock_gettime(clock) + float(sys.argv[1])
found = []
while (now := time.clock_gettime(clock)) < end:
    time.sleep(PERIOD_S)
    found.append((now + PERIOD_S, time.clock_gettime(clock)))
# Whoever sees the file sees all of it.
unfinished = sys.argv[2] + ".unfinished"
with open(unfinished, "w") as file:
    file.writelines(f"{due:.6f} {woke:.6f}\n" for due, woke in found)
os.rename(unfinished, sys.argv[2])

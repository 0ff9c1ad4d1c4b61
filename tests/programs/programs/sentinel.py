"""Sleeps 4 ms at a time on one core, and records when it should have woken and when it did.
Usage: sentinel.py SECONDS FILE SLICE_NS
Its lateness is the time that the machine takes from any thread that sleeps on that core."""

import ctypes
import os
import platform
import struct
import sys
import time

PERIOD_S = 0.004
SYS_SCHED_SETATTR = {"x86_64": 314, "aarch64": 274}[platform.machine()]


def shorten_slice(slice_ns):
    """Requests a short time slice, so that the thread runs soon after it wakes; older kernels
    ignore the request."""
    attr = struct.pack("IIQiIQQQ", 48, 0, 0, os.nice(0), 0, slice_ns, 0, 0)
    ctypes.CDLL(None).syscall(SYS_SCHED_SETATTR, 0, attr, 0)


shorten_slice(int(sys.argv[3]))
clock = time.CLOCK_REALTIME
end = time.clock_gettime(clock) + float(sys.argv[1])
found = []
while (now := time.clock_gettime(clock)) < end:
    time.sleep(PERIOD_S)
    found.append((now + PERIOD_S, time.clock_gettime(clock)))
# A reader of the file sees all of it.
unfinished = sys.argv[2] + ".unfinished"
with open(unfinished, "w") as file:
    file.writelines(f"{due:.6f} {woke:.6f}\n" for due, woke in found)
os.rename(unfinished, sys.argv[2])

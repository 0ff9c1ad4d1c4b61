"""Devices of DPDK's: whether they can be had, their arguments, and their processes."""

import subprocess

from .registry import Skip

NO_HUGE = "--no-huge -m 64"


def program_of(world):
    return world.slipstack.parent / "slipstack-dpdk"


def need_dpdk(world):
    program = program_of(world)
    if not program.exists():
        raise Skip("slipstack-dpdk is not built (make dpdk)")
    missing = [line.split()[0] for line in ldd(program) if "not found" in line]
    if missing:
        raise Skip(f"{missing[0]} is not installed (Debian: libdpdk-dev)")


def ldd(program):
    return subprocess.run(["ldd", program], capture_output=True, text=True).stdout.splitlines()


def dpdk(arguments, own=""):
    return f"dpdk:{NO_HUGE} {arguments}" + (f" -- {own}" if own else "")


def processes(world):
    """Processes with DPDK of this world."""
    return [pid for pid in world.stack_ns.pids() if name_of(pid) == "slipstack-dpdk"]


def name_of(pid):
    try:
        with open(f"/proc/{pid}/comm") as file:
            return file.read().strip()
    except OSError:
        return ""

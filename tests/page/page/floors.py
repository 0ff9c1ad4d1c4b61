"""What a request costs on the kernel and on Slipstack, part by part, and the rate that would be
left if Slipstack's own code cost nothing."""

import argparse
import json
import os
import platform
import shutil
import sys
from datetime import date

from harness.registry import MODES
from harness.world import TARGET

from .catalogue import load
from .profile import CLIENT, DEVICE, OURS, PARTS, PROGRAM, REST, SOCKETS, WAITING
from .runner import HERE, run_apart

TARGETED = (
    "PostgreSQL, one client",
    "PostgreSQL, pgbench -S",
    "PostgreSQL, 32 clients",
    "MariaDB",
    "varnish",
    "haproxy, nbthread 2",
    "socat fork as a proxy",
    "nginx with PHP-FPM",
    "BIND",
    "Knot, two UDP workers",
    "memcached, one thread",
    "memcached, four threads",
    "UDP echo, 64 bytes",
)
LABELS = {"kernel": "kernel", "inprocess": "in the program", "instance": "instance"}
HEAD = (
    "| program | on | client | program | its other calls | waits | device, sockets | Slipstack"
    " | all | of the kernel's rate: by time | floor | floor without waits |\n"
    "|---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n"
)


def main():
    options = arguments()
    reason = missing()
    if reason:
        print(f"floor: {reason}", file=sys.stderr)
        return 1
    wanted = options.name or TARGETED
    entries = [
        entry for entry in load(HERE / "entries") if any(part in entry.name for part in wanted)
    ]
    if not entries:
        print("floor: no such name (tests/page/run --list)", file=sys.stderr)
        return 1
    print(f"{date.today()}, Linux {platform.release()}, {os.cpu_count()} processors;", end=" ")
    print(f"{options.rounds} x {options.seconds} s; microseconds of processor time per request\n")
    print(HEAD, end="", flush=True)
    kept, lacks = [], False
    for entry in entries:
        version = entry.version()
        if version is None:
            print(f"{entry.name}: scripts/setup {' '.join(entry.packages)}", file=sys.stderr)
            lacks = True
            continue
        runs = measured(entry, options)
        lacks = lacks or not all(len(of) == options.rounds for of in runs.values())
        kept.append({"name": entry.name, "version": version, "runs": runs})
        print("".join(lines(f"{entry.name} {version}", runs)), end="", flush=True)
    if options.json:
        with open(options.json, "w") as file:
            json.dump(kept, file, indent=1)
    return 1 if lacks else 0


def arguments():
    parser = argparse.ArgumentParser(
        prog="scripts/floor",
        description="Processor time per request by part, on the kernel and on Slipstack, and the"
        " rate that would be left if Slipstack's own code cost nothing.",
    )
    parser.add_argument(
        "name", nargs="*", help="a part of a name of `tests/page/run --list`; default: those with"
        " a target"
    )
    parser.add_argument("--seconds", type=int, default=3, help="of each measurement")
    parser.add_argument("--rounds", type=int, default=1, help="runs of each, by turns")
    parser.add_argument("--json", metavar="FILE", help="keep every run there")
    return parser.parse_args()


def missing():
    if os.geteuid() != 0:
        return "needs root"
    if not shutil.which("perf"):
        return "needs perf (Debian: scripts/setup linux-perf)"
    if not (TARGET / "release" / "slipstack").exists():
        return "needs target/release/slipstack (make build)"
    return None


def measured(entry, options):
    """Runs by mode."""
    runs = {mode: [] for mode in MODES}
    for _ in range(options.rounds):
        for mode in MODES:
            run = run_apart(entry, mode, "--profile", str(options.seconds))
            if run.get("profile") and run.get("rate"):
                runs[mode].append(run)
            else:
                why = run.get("failed", "its rate is not measured by one client")
                print(f"{entry.name} {mode}: {why}", file=sys.stderr)
    return runs


def per_request(runs):
    """Microseconds of each part for one request, over all runs; None without a run."""
    requests = sum(run["rate"] * run["profile"]["seconds"] for run in runs)
    if not requests:
        return None
    return {
        part: sum(run["profile"]["parts"][part] for run in runs) / requests * 1e6 for part in PARTS
    }


def floors(kernel, ours):
    """Multiples of the kernel's rate: by processor time as it is, without Slipstack's own code, and
    without its waits too. Client and program count as the cheaper of both runs, because a copy by
    the C library in Slipstack's name is in the program's time."""
    everything = sum(kernel.values())
    least = sum(min(kernel[part], ours[part]) for part in (CLIENT, PROGRAM, REST))
    without_code = least + ours[DEVICE] + ours[SOCKETS] + ours[WAITING]
    return (
        everything / sum(ours.values()),
        everything / without_code,
        everything / (without_code - ours[WAITING]),
    )


def lines(title, runs):
    kernel = per_request(runs["kernel"])
    for mode in MODES:
        parts = per_request(runs[mode])
        if parts is None:
            continue
        cells = [parts[part] for part in (CLIENT, PROGRAM, REST, WAITING)]
        cells += [parts[DEVICE] + parts[SOCKETS], parts[OURS], sum(parts.values())]
        ratios = ["", "", ""]
        if mode != "kernel" and kernel:
            ratios = [f"{ratio:.2f} ×" for ratio in floors(kernel, parts)]
        shown = [f"{cell:.1f}" for cell in cells] + ratios
        yield f"| {title} | {LABELS[mode]} | {' | '.join(shown)} |\n"
        title = ""

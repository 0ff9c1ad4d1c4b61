"""Runs each program in turns on the kernel, in-process and through an instance; each run is a
separate process."""

import argparse
import datetime
import json
import os
import signal
import subprocess
import sys
import time
import traceback
from pathlib import Path

from harness.apart import remove_namespaces
from harness.registry import MODES
from harness.world import ROOT, TARGET, World

from . import table, tools
from .catalogue import ENTRIES, load
from .profile import Profile

HERE = Path(__file__).resolve().parents[1]


def main():
    options = arguments()
    entries = load(HERE / "entries")
    if options.one:
        chosen = next(entry for entry in entries if entry.name == options.one)
        return run_one(chosen, options.mode[0], options.profile)
    wanted = [
        entry
        for entry in entries
        if not options.only or any(part in entry.name for part in options.only)
    ]
    if options.list:
        for entry in wanted:
            print(f"{entry.name:32} {' '.join(entry.packages)}")
        return 0
    if options.packages:
        print(" ".join(sorted({package for entry in wanted for package in entry.packages})))
        return 0
    if os.geteuid() != 0 or not (TARGET / "release" / "slipstack").exists():
        print("page: needs root and target/release/slipstack (make build)", file=sys.stderr)
        return 1
    return run_all(wanted, options)


def arguments():
    parser = argparse.ArgumentParser(
        description="Programs of other people, on the kernel and on Slipstack."
    )
    parser.add_argument(
        "--mode", action="append", choices=MODES, help="default: all three, in turns"
    )
    parser.add_argument(
        "--only", action="append", metavar="PART", help="programs whose name contains PART"
    )
    parser.add_argument("--list", action="store_true", help="only name the programs")
    parser.add_argument("--packages", action="store_true", help="only name the Debian packages")
    parser.add_argument(
        "--rounds", type=int, default=1, help="runs in each mode; the best rate counts"
    )
    parser.add_argument(
        "--out",
        metavar="FILE",
        help="where the table goes; default: the book is updated, if everything was run",
    )
    parser.add_argument(
        "--update",
        metavar="FILE",
        help="a page whose rows of these programs are replaced; its other rows stay",
    )
    parser.add_argument(
        "--install",
        action="store_true",
        help="install the packages of each program before it runs; some exclude each other",
    )
    parser.add_argument("--json", metavar="FILE", help="keep every run there")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    # Seconds of the measurement beside which perf runs.
    parser.add_argument("--profile", type=int, default=0, help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.mode = options.mode or list(MODES)
    if not options.out and not options.only and options.mode == list(MODES):
        options.update = options.update or str(ROOT / "docs/book/src/page-of-programs.md")
    options.out = options.out or options.update
    return options


def run_all(wanted, options):
    rows = []
    kept = table.rows_of(Path(options.update).read_text()) if options.update else {}
    for number, entry in enumerate(wanted, 1):
        row = run_entry(entry, options)
        if row is None:
            missing = " ".join(entry.packages) or "not built: make programs"
            print(f"[{number}/{len(wanted)}] {entry.name}: not installed ({missing})", flush=True)
            continue
        rows.append(row)
        print(f"[{number}/{len(wanted)}] {table.line(row)}", flush=True)
        if options.json:
            Path(options.json).write_text(json.dumps(rows, indent=1))
        if options.out:
            made = kept | {row["name"]: table.written(row) for row in rows}
            names = [entry.name for entry in ENTRIES if entry.name in made]
            Path(options.out).write_text(table.page(made[name] for name in names))
    failed = table.failures(rows)
    for name, mode, reason in failed:
        print(f"fails: {name} {mode}: {reason}")
    print(
        f"{len(rows)} programs; {len(failed)} runs on Slipstack that fail where the kernel's do not"
    )
    return 0


def run_entry(entry, options):
    """The runs of a program in each mode; None if it is not installed."""
    row = {"name": entry.name, "version": "", "runs": {}, "on": str(datetime.date.today())}
    if entry.absent:
        return {**row, "absent": entry.absent}
    if options.install and not entry.is_installed():
        subprocess.run([ROOT / "scripts" / "setup", *entry.packages], stdout=subprocess.DEVNULL)
    row["version"] = entry.version()
    if row["version"] is None:
        return None
    runs = row["runs"] = {mode: [] for mode in options.mode}
    for _ in range(options.rounds):
        for mode in options.mode:
            others = busy_share()
            runs[mode].append({**run_apart(entry, mode), "busy": others})
    return row


def busy_share(seconds=0.5):
    """The share of the processors' time that other programs use."""

    def times():
        with open("/proc/stat") as file:
            return [int(field) for field in file.readline().split()[1:9]]

    before = times()
    time.sleep(seconds)
    spent = [after - earlier for earlier, after in zip(before, times())]
    # The fourth and fifth are idle, and idle while a disk is waited for.
    return 1 - (spent[3] + spent[4]) / max(1, sum(spent))


def run_apart(entry, mode, *more):
    words = [sys.executable, str(HERE / "run"), "--one", entry.name, "--mode", mode, *more]
    child = subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )
    try:
        text, _ = child.communicate(timeout=entry.timeout_s)
    except subprocess.TimeoutExpired:
        child.send_signal(signal.SIGTERM)
        try:
            text, _ = child.communicate(timeout=20)
        except subprocess.TimeoutExpired:
            child.kill()
            text, _ = child.communicate()
        text += f'\n{{"failed": "no end within {entry.timeout_s:.0f} s"}}'
    remove_namespaces(child.pid)
    lines = text.strip().splitlines()
    try:
        return {**json.loads(lines[-1]), "text": "\n".join(lines[:-1])}
    except (ValueError, IndexError):
        return {"failed": "no outcome", "text": text}


def reason(error):
    """One line: the end of the output if the program failed, otherwise the beginning."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    words = lines[0].partition(" -- ")[2].split()
    if lines[0] == "the server ended":
        return lines[-1][:160]
    return (
        f"{words[0]}: {lines[-1]}"[:160]
        if words and " ended with " in str(error)
        else lines[0][:160]
    )


def run_one(entry, mode, profile_seconds=0):
    def on_term(number, frame):
        raise AssertionError("took too long")

    signal.signal(signal.SIGTERM, on_term)
    profile = Profile()
    if profile_seconds:
        tools.SECONDS, tools.observed = profile_seconds, profile.observed
    world = World(mode)
    try:
        outcome = entry.body(world)
        left = world.finish()
        assert not left, "left behind: " + "; ".join(left)
        result = {"checked": outcome.checked, "rate": outcome.rate, "unit": outcome.unit}
        result["profile"] = profile.result
    except BaseException as error:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        traceback.print_exc(limit=-6)
        for process in world.processes:
            print(
                f"[{' '.join(process.words[2:])[-160:]}]"
                f" {process.errors()[-1500:]} {process.output()[-500:]}"
            )
        result = {"failed": reason(error)}
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        world.remove()
    print(json.dumps(result), flush=True)
    return 0

"""Runs tests, each in a separate process with a time limit, and counts the results."""

import argparse
import json
import os
import signal
import sys
import time
from pathlib import Path

from . import comparison, expert
from .apart import is_recorded, run_apart, run_many
from .registry import MODES, load
from .world import TARGET

FOLDER = Path(__file__).resolve().parents[1]
# Of a test whose capture differs from the kernel's.
FURTHER_RUNS = 3


def is_named(name, part):
    return name.startswith(part) if "." in part else part in name


def main():
    options = arguments()
    tests = load(FOLDER)
    wanted = [
        (test, mode)
        for test in tests
        for mode in options.mode
        if mode in test.modes
        and (not options.only or any(is_named(test.name, part) for part in options.only))
    ]
    if options.list:
        for test, mode in wanted:
            print(f"{test.name}  {mode}")
        return 0
    problem = missing(options)
    if problem:
        print(f"programs: {problem}", file=sys.stderr)
        return 1
    of_kernel = {test.name for test in tests if "kernel" in test.modes}
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    return run_all(wanted, options, of_kernel)


def arguments():
    parser = argparse.ArgumentParser(
        description="Runs real programs on the kernel and on Slipstack."
    )
    parser.add_argument(
        "--mode", action="append", choices=MODES, help="default: inprocess and instance"
    )
    parser.add_argument(
        "--only",
        action="append",
        metavar="PART",
        help="tests whose name contains PART, or begins with it where that has a dot",
    )
    parser.add_argument("--list", action="store_true", help="only name the tests")
    parser.add_argument(
        "--jobs",
        type=int,
        default=5,
        help="tests at a time (they wait more than they work); those that measure run alone",
    )
    parser.add_argument(
        "--keep",
        action="store_true",
        help="keep the folder of a failed test, and what --captures captured",
    )
    parser.add_argument("--repeat", type=int, default=1, help="run everything this many times")
    parser.add_argument(
        "--attempts",
        type=int,
        default=1,
        help="a test that fails is run again, alone, up to this many times in all",
    )
    parser.add_argument("--json", metavar="FILE", help="write the outcomes there")
    parser.add_argument(
        "--captures",
        metavar="DIR",
        help="capture each test and have tshark compare it with the kernel's; all modes by default",
    )
    options = parser.parse_args()
    options.mode = options.mode or (list(MODES) if options.captures else ["inprocess", "instance"])
    return options


def missing(options):
    if os.geteuid() != 0:
        return "network namespaces need root"
    if options.mode != ["kernel"] and not (TARGET / "release" / "slipstack").exists():
        return f"{TARGET}/release/slipstack is missing: make build"
    return None


def run_all(wanted, options, of_kernel):
    outcomes = []
    if options.captures:
        comparison.clear(options.captures)
        # For all tests, and removed with this process.
        expert.configuration()
    started = time.monotonic()
    wanted = wanted * options.repeat
    together = [entry for entry in wanted if not entry[0].is_serial]
    alone = [entry for entry in wanted if entry[0].is_serial]
    for entries, jobs in ((together, options.jobs), (alone, 1)):
        for outcome in run_many(entries, max(1, jobs), options):
            report(outcome)
            outcomes.append(outcome)
    unsteady = again(outcomes, options)
    failed = [outcome for outcome in outcomes if outcome["outcome"] == "failed"]
    counts = {
        name: sum(1 for outcome in outcomes if outcome["outcome"] == name)
        for name in ("passed", "failed", "skipped")
    }
    if unsteady:
        print("\npassed, but not at the first attempt, which said:")
        for outcome in unsteady:
            report(outcome)
    if failed:
        print("\nfailed, once more:")
        for outcome in failed:
            report(outcome)
    if options.captures:
        failed += captures_differ(options, outcomes, of_kernel)
    if options.json:
        Path(options.json).write_text(
            json.dumps(
                [{key: outcome[key] for key in outcome if key != "test"} for outcome in outcomes],
                indent=1,
            )
        )
    for outcome in outcomes:
        if outcome["outcome"] == "failed":
            print(f"failed: {outcome['name']} {outcome['mode']}")
    print(f"programs, {time.monotonic() - started:.0f} s:")
    note = f" ({len(unsteady)} passed at a further attempt only)" if unsteady else ""
    print(
        f"{counts['passed']} passed, {counts['failed']} failed, {counts['skipped']} skipped{note}",
        flush=True,
    )
    return 1 if failed or not outcomes else 0


def again(outcomes, options):
    """Repeats alone the tests that failed beside others. Returns the failures of tests that
    passed then."""
    unsteady = []
    for place, first in enumerate(outcomes):
        for _ in range(options.attempts - 1):
            if outcomes[place]["outcome"] == "failed":
                outcomes[place] = run_apart(first["test"], first["mode"], options)
                report(outcomes[place])
        if first["outcome"] == "failed" and outcomes[place]["outcome"] != "failed":
            unsteady.append(first)
    return unsteady


def captures_differ(options, outcomes, of_kernel):
    folder = options.captures
    passed = [outcome for outcome in outcomes if outcome["outcome"] == "passed"]
    recorded = [
        (outcome["name"], outcome["mode"]) for outcome in passed if is_recorded(outcome["test"])
    ]
    compared = comparison.Comparison(folder, FOLDER / "captures.toml", recorded, of_kernel)
    failed = []
    if compared.differing:
        failed = capture_again(
            compared.differing,
            {outcome["name"]: outcome["test"] for outcome in passed},
            of_kernel,
            options,
        )
        compared = comparison.Comparison(folder, FOLDER / "captures.toml", recorded, of_kernel)
    print(
        f"\n{compared.summary()}\n{len(passed) - len(recorded)} runs of tests with a TAP or no"
        " device were not captured"
    )
    return compared.findings + failed


def capture_again(differing, tests, of_kernel, options):
    """Some more runs of tests whose captures differ, by turns with the kernel's. Returns those that
    failed."""
    outcomes = []
    print(
        f"\n{len(differing)} captures differ from the kernel's; these tests again,"
        f" {FURTHER_RUNS} times:"
    )
    entries = {(name, mode) for name, mode in differing} | {
        (name, "kernel") for name, _ in differing if name in of_kernel
    }
    for number in range(FURTHER_RUNS):
        folder = comparison.further(options.captures, number)
        for name, mode in sorted(entries):
            outcomes.append(
                run_apart(
                    tests[name],
                    mode,
                    argparse.Namespace(**{**vars(options), "captures": str(folder)}),
                )
            )
            report(outcomes[-1])
    return [outcome for outcome in outcomes if outcome["outcome"] == "failed"]


def report(outcome):
    line = (
        f"{outcome['outcome']:7} {outcome['seconds']:5.1f} s  {outcome['mode']:9} {outcome['name']}"
    )
    if outcome["outcome"] != "failed" and outcome["text"]:
        # The reason for which it was left out, or a figure.
        line += f": {outcome['text'].splitlines()[-1]}"
    print(line)
    if outcome["outcome"] == "failed":
        print("    " + outcome["text"].replace("\n", "\n    "))
    sys.stdout.flush()

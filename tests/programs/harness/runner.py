"""Runs tests, each in a separate process with a time limit, and counts the results."""

import argparse
import json
import os
import signal
import subprocess
import sys
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from . import comparison, expert, net
from .registry import MODES, Skip, load
from .world import TARGET, World

FOLDER = Path(__file__).resolve().parents[1]
SKIPPED = 77
# Of a test whose capture differs from the kernel's.
FURTHER_RUNS = 3


def main():
    options = arguments()
    tests = load(FOLDER)
    if options.one:
        return run_one(tests, options)
    wanted = [
        (test, mode)
        for test in tests
        for mode in options.mode
        if mode in test.modes
        and (not options.only or any(part in test.name for part in options.only))
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
    return run_all(wanted, options, of_kernel)


def arguments():
    parser = argparse.ArgumentParser(
        description="Runs real programs on the kernel and on Slipstack."
    )
    parser.add_argument(
        "--mode", action="append", choices=MODES, help="default: inprocess and instance"
    )
    parser.add_argument(
        "--only", action="append", metavar="PART", help="tests whose name contains PART"
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
    parser.add_argument("--one", help=argparse.SUPPRESS)
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
    started = time.monotonic()
    wanted = wanted * options.repeat
    together = [entry for entry in wanted if not entry[0].is_serial]
    alone = [entry for entry in wanted if entry[0].is_serial]
    for entries, jobs in ((together, options.jobs), (alone, 1)):
        with ThreadPoolExecutor(max(1, jobs)) as pool:
            for outcome in pool.map(lambda entry: run_apart(*entry, options), entries):
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


def is_recorded(test):
    """A TAP is made by the program under test: there is nothing to listen on before, and its frames
    have no checksums."""
    return test.device == "veth"


def run_apart(test, mode, options):
    words = [sys.executable, str(FOLDER / "run"), "--one", test.name, "--mode", mode]
    words += ["--keep"] if options.keep else []
    words += ["--captures", options.captures] if options.captures else []
    limit_s = test.timeout_s + (expert.READING_S if options.captures else 0)
    before = time.monotonic()
    child = subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )
    try:
        text, _ = child.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        # The test cleans up on SIGTERM; this ends processes that remain.
        child.send_signal(signal.SIGTERM)
        try:
            text, _ = child.communicate(timeout=20)
        except subprocess.TimeoutExpired:
            child.kill()
            text, _ = child.communicate()
        text += f"\nno end within {limit_s} s"
    remove_namespaces(child.pid)
    outcome = {0: "passed", SKIPPED: "skipped"}.get(child.returncode, "failed")
    return {
        "test": test,
        "name": test.name,
        "mode": mode,
        "outcome": outcome,
        "text": text.strip(),
        "seconds": time.monotonic() - before,
    }


def remove_namespaces(pid):
    """Whatever a test that died has left."""
    for suffix in ("s", "c"):
        if os.path.exists(f"/run/netns/ss-{pid}-{suffix}"):
            namespace = net.Namespace.__new__(net.Namespace)
            namespace.name, namespace.path = f"ss-{pid}-{suffix}", f"/run/netns/ss-{pid}-{suffix}"
            namespace.remove()


def report(outcome):
    line = (
        f"{outcome['outcome']:7} {outcome['seconds']:5.1f} s  {outcome['mode']:9} {outcome['name']}"
    )
    if outcome["outcome"] == "skipped":
        line += f": {outcome['text'].splitlines()[-1] if outcome['text'] else ''}"
    print(line)
    if outcome["outcome"] == "failed":
        print("    " + outcome["text"].replace("\n", "\n    "))
    sys.stdout.flush()


def run_one(tests, options):
    test = next(test for test in tests if test.name == options.one)
    keep = options.keep

    def on_term(number, frame):
        raise AssertionError("took too long")

    signal.signal(signal.SIGTERM, on_term)
    world = World(options.mode[0], test.device)
    code = 1
    try:
        recording = expert.Recording(world) if options.captures and is_recorded(test) else None
        test.body(world)
        if recording:
            recording.end()
            expert.write(options.captures, world.mode, test.name, recording)
            if keep:
                recording.keep(options.captures, f"{test.name}.{world.mode}")
        left = world.finish()
        assert not left, "left behind: " + "; ".join(left)
        code = 0
    except Skip as reason:
        print(reason)
        code = SKIPPED
    except BaseException:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        traceback.print_exc(limit=-6)
        show(world)
        if keep:
            print(f"kept: {world.folder}")
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if code == 1 and keep:
            for namespace in world.namespaces:
                namespace.remove()
        else:
            world.remove()
    return code


def show(world):
    for process in world.processes:
        errors = process.errors().strip()
        if errors:
            print(f"[{' '.join(process.words[2:])[-160:]}]\n{errors[-1200:]}")

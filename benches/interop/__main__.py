"""Kernel and Slipstack over the same bad wires: goodput, retransmissions, short transfers,
fairness.

Fourteen representative cells, or the whole matrix with --full. Each finished run is written down at
once: the same --out goes on where it stopped. The kernel's own runs are kept for each kernel
version and used again."""

import argparse
import json
import pathlib
import platform
import signal
import subprocess
import sys
import time

import cells
import measure
import report
from topology import ROOT, Topology

FAIR_SECONDS = 60


def options():
    parser = argparse.ArgumentParser(prog="make interop", description=__doc__)
    parser.add_argument(
        "--full", action="store_true", help="all cells, 10 runs each unless --runs says otherwise"
    )
    parser.add_argument("--runs", type=int, help="runs of each cell (default 1, with --full 10)")
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        help="cells whose 'path condition pair' contains this",
    )
    parser.add_argument("--no-fairness", action="store_true", help="without the two flows of 60 s")
    parser.add_argument(
        "--pcap", action="store_true", help="keep captures of the bulk transfers in the results"
    )
    parser.add_argument("--target", type=pathlib.Path, default=ROOT / "target" / "release")
    parser.add_argument(
        "--out", type=pathlib.Path, help="directory for results; the same again = go on"
    )
    return parser.parse_args()


class Record:
    """Runs that are done, one line each, with the kernel's own in a file that outlives this one."""

    def __init__(self, directory):
        self.raw = directory / "raw.jsonl"
        self.cache = ROOT / "bench-results" / f"interop-kernel-{platform.release()}.jsonl"
        self.cache.parent.mkdir(exist_ok=True)
        self.results = self.read(self.raw) + self.read(self.cache)

    @staticmethod
    def read(path):
        if not path.exists():
            return []
        return [json.loads(line) for line in path.read_text().splitlines()]

    def has(self, cell, pair, run):
        return any(identity(r) == (cell, pair, run) for r in self.results)

    def add(self, result):
        self.results.append(result)
        is_kept = result["pair"] == cells.BASELINE and "failed" not in result
        with open(self.cache if is_kept else self.raw, "a") as out:
            out.write(json.dumps(result) + "\n")


def seed_of(run):
    return run + 1


def identity(result):
    """Runs on a wire that is not theirs count for nothing."""
    is_its = result.get("seed", seed_of(0)) == seed_of(result["run"])
    return (result["path"], result["condition"]), result["pair"], result["run"] if is_its else None


def planned(opts, chosen):
    runs = opts.runs or (10 if opts.full else 1)
    return [
        (cell, pair, run)
        for run in range(runs)
        for cell in chosen
        for pair in cells.PAIRS
        if all(word in f"{cell[0]} {cell[1]} {pair}" for word in opts.only)
    ]


def run_all(topology, todo, has_pcap, record, directory):
    begin, done = time.monotonic(), 0
    missing = [item for item in todo if not record.has(*item)]
    for cell, pair, run in missing:
        result = {"path": cell[0], "condition": cell[1], "pair": pair, "run": run}
        pcap = directory / f"{cell[0]}-{cell[1]}-{pair}-{run}" if has_pcap else None
        try:
            result |= measure.run_cell(topology, *cell, pair, seed_of(run), pcap)
            said = (
                f"{result['goodput_mbit']:9.2f} Mbit/s "
                f" {100 * result['retransmitted_share']:5.2f} % again "
                f" {result['spurious']:4} spurious  short p99"
                f" {result['short_p99_ms'] or -1:6.0f} ms"
            )
        except (
            RuntimeError,
            AssertionError,
            OSError,
            ValueError,
            subprocess.SubprocessError,
        ) as error:
            result["failed"] = str(error)[-800:]
            said = f"FAILED: {error}"
        record.add(result)
        done += 1
        left = (time.monotonic() - begin) / done * (len(missing) - done)
        print(
            (
                f"{done:4}/{len(missing)}  {cell[0]:9} {cell[1]:9} {pair:13} {said} "
                f" ({left / 60:.0f} min left)"
            ),
            flush=True,
        )
    wanted = set(todo)
    return [r for r in record.results if identity(r) in wanted]


def fairness(topology):
    found = {}
    for first in ("kernel", "ours"):
        found[f"{first} and kernel"] = measure.run_fair(topology, first, FAIR_SECONDS)
        print(f"fairness, {first} and kernel: {found[f'{first} and kernel']}", flush=True)
    return found


def main():
    opts = options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    chosen = cells.all_cells() if opts.full else cells.REPRESENTATIVE
    todo = planned(opts, chosen)
    if not todo:
        sys.exit(
            f"interop: no cell is called '{' '.join(opts.only)}'; a cell is one of\n  "
            + "\n  ".join(f"{path} {condition}" for path, condition in chosen)
            + f"\nwith one of {', '.join(cells.PAIRS)}"
        )
    stamp = time.strftime("%Y%m%d-%H%M%S")
    directory = (opts.out or ROOT / "bench-results" / f"interop-{stamp}").resolve()
    directory.mkdir(parents=True, exist_ok=True)
    commit = subprocess.run(
        ["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"], capture_output=True, text=True
    )
    meta = {
        "commit": commit.stdout.strip(),
        "kernel": platform.release(),
        "when": stamp,
        "late": "the link's own lateness (99 %) is in results.json",
    }
    record = Record(directory)
    with Topology(opts.target) as topology:
        results = run_all(topology, todo, opts.pcap, record, directory)
        fair = {} if opts.no_fairness or opts.only else fairness(topology)
    report.write(results, fair, meta, directory)
    return 1 if any("failed" in r for r in results) else 0


if __name__ == "__main__":
    sys.exit(main())

"""What each rule of thumb brings: rounds with and without it, in turns, on the same two cores.

A row is a case, a placement and a rule: the rate, the processor time for a request, the median and
the 99th percentile without the rule, each as its difference from what comes with all rules, and how
far the rounds with all rules lie apart. A rule that brings less than that anywhere has not earned
its place. Needs root; the rules are in crates/channel/src/heuristics.rs, and
SLIPSTACK_WITHOUT=RULE,... switches them off.
"""

import argparse
import json
import os
import pathlib
import signal
import statistics
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.dont_write_bytecode = True
sys.path[:0] = [str(HERE), str(HERE.parent / "suite")]

import measure  # noqa: E402
import servers  # noqa: E402
import topology  # noqa: E402

WITHOUT = "SLIPSTACK_WITHOUT"
RULES = ("spin", "holds", "moves", "naps")
PLACEMENTS = ("in-process", "instance")
FIGURES = (("rate", "rate"), ("cpu_us", "CPU"), ("p50_us", "p50"), ("p99_us", "p99"))


def options():
    parser = argparse.ArgumentParser(prog="make heuristics", description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="short runs of fewer cases: some five minutes"
    )
    parser.add_argument("--rounds", type=int, default=0, help="default 5, or 2 if quick")
    parser.add_argument(
        "--seconds",
        type=float,
        default=0.0,
        help="measured seconds of a run; default 2, or 0.5 if quick",
    )
    parser.add_argument(
        "--rule", action="append", choices=RULES, help="may be given several times; default all"
    )
    parser.add_argument(
        "--only", default="", help="only cases whose name contains one of these, by commas"
    )
    parser.add_argument("--placement", action="append", choices=PLACEMENTS)
    parser.add_argument("--target", default=str(ROOT / "target" / "release"))
    parser.add_argument("--json", default="", help="keep every run there")
    parsed = parser.parse_args()
    parsed.rounds = parsed.rounds or (2 if parsed.quick else 5)
    parsed.seconds = parsed.seconds or (0.5 if parsed.quick else 2.0)
    return parsed


class Runs:
    def __init__(self, opts, topo, folder):
        self.opts, self.topo, self.folder = opts, topo, folder
        self.log = str(folder / "programs.log")
        self.slipstack = str(pathlib.Path(opts.target) / "slipstack")

    def start(self, case, words, without):
        before = os.environ.get(WITHOUT)
        os.environ[WITHOUT] = without
        try:
            return self.topo.start(self.topo.server_ns, case.cores, words, self.log)
        finally:
            os.environ.pop(WITHOUT)
            if before is not None:
                os.environ[WITHOUT] = before

    def serve(self, case, placement, without):
        device = ["--if", "vs", "--ip", f"{topology.STACK_SERVER}/24", *case.options]
        words = case.command(topology.STACK_SERVER)
        if placement == "in-process":
            return [
                self.start(
                    case, [*case.before, self.slipstack, "run", *device, "--", *words], without
                )
            ]
        instance = self.start(
            case, [self.slipstack, "instance", "--name", "rules", *device], without
        )
        ready = [self.slipstack, "wait", "--instance", "rules"]
        self.topo.run(self.topo.server_ns, case.cores, ready, 10)
        run = [self.slipstack, "run", "--instance", "rules", *case.options, "--", *words]
        return [instance, self.start(case, [*case.before, *run], without)]

    def one(self, case, placement, without):
        processes = self.serve(case, placement, without)
        try:
            case.wait_ready(self.topo, topology.STACK_SERVER)
            client = self.topo.start_client(case.client(topology.STACK_SERVER, self.opts.seconds))
            try:
                time.sleep(case.warm_s)
                with measure.Cpu() as cpu:
                    time.sleep(self.opts.seconds)
                out, errors = client.communicate(timeout=30)
            finally:
                self.topo.stop(client)
            if client.returncode != 0:
                raise RuntimeError((errors or out).strip()[-200:])
            found = case.read(out)
        finally:
            for process in reversed(processes):
                self.topo.stop(process)
            time.sleep(0.1)
        found["cpu_us"] = cpu.cores * 1e6 / found["rate"]
        return found

    def attempt(self, case, placement, without):
        try:
            return self.one(case, placement, without)
        except (RuntimeError, ValueError, OSError) as error:
            print(
                f"{case.name} {placement} without {without or 'nothing'}: {error}",
                file=sys.stderr,
                flush=True,
            )
            return None

    def compare(self, case, placement, rules):
        """Rounds of one with all rules and one without each; each round begins with another one."""
        found = {rule: [] for rule in ("", *rules)}
        kinds = list(found)
        for round_number in range(self.opts.rounds):
            at = round_number % len(kinds)
            for rule in kinds[at:] + kinds[:at]:
                one = self.attempt(case, placement, rule)
                if one:
                    found[rule].append(one)
        return found


def middle(runs, figure):
    return statistics.median(run[figure] for run in runs) if runs else 0.0


def spread(runs, figure):
    values = [run[figure] for run in runs]
    return (max(values) - min(values)) / statistics.median(values) * 100 if len(values) > 1 else 0.0


def show(case, placement, found):
    base = found[""]
    if not base:
        print(f"{case.name}, {placement}: no run with all rules")
        return
    print(
        f"\n{case.name}, {placement}: {middle(base, 'rate'):,.0f} /s (±"
        f" {spread(base, 'rate') / 2:.0f} %), {middle(base, 'cpu_us'):.2f} CPU-µs (±"
        f" {spread(base, 'cpu_us') / 2:.0f} %), p50 {middle(base, 'p50_us'):.0f} µs, p99"
        f" {middle(base, 'p99_us'):.0f} µs"
    )
    print(f"  {'without':12}" + "".join(f"{name:>10}" for _, name in FIGURES) + f"{'spread':>10}")
    for rule, runs in found.items():
        if rule and runs:
            shares = [
                middle(runs, figure) / max(middle(base, figure), 1e-9) * 100 - 100
                for figure, _ in FIGURES
            ]
            print(
                f"  {rule:12}"
                + "".join(f"{share:+9.1f}%" for share in shares)
                + f"{spread(runs, 'rate') / 2:8.0f} %",
                flush=True,
            )


def main():
    opts = options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    if os.geteuid() != 0:
        print("heuristics: needs root", file=sys.stderr)
        return 1
    folder = pathlib.Path(tempfile.mkdtemp(prefix="ss-heuristics-"))
    folder.chmod(0o755)
    words = opts.only.split(",")
    every = []
    with topology.Topology("cubic") as topo:
        target = pathlib.Path(opts.target)
        for case in servers.all_cases(
            folder, target, lambda name: any(word in name for word in words)
        ):
            for placement in opts.placement or PLACEMENTS:
                rules = [
                    rule
                    for rule in opts.rule or RULES
                    if case.concerns(rule, placement, opts.quick)
                ]
                if not rules:
                    continue
                found = Runs(opts, topo, folder).compare(case, placement, rules)
                show(case, placement, found)
                every.append({"case": case.name, "placement": placement, "found": found})
                if opts.json:
                    pathlib.Path(opts.json).write_text(json.dumps(every, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Kernel against Slipstack, in-process and instance: alternating runs on the same cores.

Set-up (a): the client on the kernel. Set-up (b): the client on Slipstack, against both
servers. Set-up (c): both ends on one host, by the kernel's loopback or as two engines of one
device. Every core's time counts, softirq included. Results go to bench-results/.
"""

import argparse
import json
import pathlib
import platform
import signal
import subprocess
import sys
import time

import cases
import measure
import report
import topology
from topology import (
    CLIENT_CORE,
    KERNEL_CLIENT,
    KERNEL_SERVER,
    SERVER_CORE,
    STACK_CLIENT,
    STACK_SERVER,
)

ROOT = pathlib.Path(__file__).resolve().parents[2]
# A client starts and warms up for so long before the processors are looked at, and they are not
# looked at while it ends.
WARM_S = 0.6
END_S = 0.1
AVAILABLE = pathlib.Path("/proc/sys/net/ipv4/tcp_available_congestion_control")


def options():
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("--runs", type=int, default=3, help="alternating runs of each case")
    parser.add_argument("--seconds", type=float, default=2.0, help="measured seconds of one run")
    parser.add_argument(
        "--only", default="", help="only cases whose name contains one of these, by commas"
    )
    parser.add_argument(
        "--setup", choices=["a", "b", "c", "both"], default="both", help="both: a and b"
    )
    parser.add_argument(
        "--placement",
        action="append",
        choices=report.ALL,
        help=(
            "may be given several times; default kernel, in-process and instance. "
            "in-process-xdp: over AF_XDP; floor: for HTTP canned answers without a TCP, for echo"
            " an engine that answers without a program"
        ),
    )
    parser.add_argument(
        "--gather-us", default="25", help="of floor: how long frames gather after a wake-up"
    )
    parser.add_argument(
        "--congestion",
        choices=AVAILABLE.read_text().split(),
        default="cubic",
        help=(
            "the kernel's congestion control in both namespaces; default cubic, as Slipstack's own"
        ),
    )
    parser.add_argument(
        "--target", default=str(ROOT / "target" / "release"), help="where the built binaries are"
    )
    parser.add_argument("--out", default="", help="directory for results")
    return parser.parse_args()


class Bench:
    def __init__(self, opts, topo, directory):
        self.opts, self.topo, self.directory = opts, topo, directory
        target = pathlib.Path(opts.target)
        self.slipstack = str(target / "slipstack")
        self.floor = str(target / "slipstack-floor")
        self.paths = {
            "load": str(target / "slipstack-load"),
            "echo": str(target / "slipstack-echo"),
            "slipstack": self.slipstack,
            "folder": directory,
            "nginx_conf": str(directory / "nginx.conf"),
        }
        (directory / "nginx.conf").write_text(cases.nginx_conf(directory))
        self.log = str(directory / "programs.log")
        self.kernel_rate = {}

    def start_server(self, case, placement, spin):
        """→ (address, processes)"""

        def commands(address, *before):
            ports = cases.ports(case)
            servers = [cases.server_command(case, address, it, self.paths) for it in ports]
            return [self.start([*before, *argv], case.cores) for argv in servers]

        if placement == "kernel":
            return KERNEL_SERVER, commands(KERNEL_SERVER)
        if placement == report.FLOOR and case.server == "echo":
            words = ["serve", "echo", "--port", str(cases.ports(case)[0])]
            device = ["--if", "vs", "--ip", f"{STACK_SERVER}/24", *spin]
            return STACK_SERVER, [self.start([self.slipstack, *words, *device], case.cores)]
        if placement == report.FLOOR:
            argv = [
                self.floor,
                "--if",
                "vs",
                "--ip",
                STACK_SERVER,
                "--gather-us",
                self.opts.gather_us,
                *([] if spin else ["--spin"]),
            ]
            return STACK_SERVER, [self.start(argv, SERVER_CORE)]
        device = ["--if", "vs", "--ip", f"{STACK_SERVER}/24"]
        if placement == report.XDP:
            device += ["--device", "xdp"]
        if placement in ("in-process", report.XDP):
            run = (self.slipstack, "run", *device, *spin, "--")
            return STACK_SERVER, commands(STACK_SERVER, *run)
        words = [self.slipstack, "instance", "--name", "bench", *device, *spin]
        instance = self.start(words, SERVER_CORE)
        time.sleep(0.7)
        run = (self.slipstack, "run", "--instance", "bench", *spin, "--")
        return STACK_SERVER, [instance, *commands(STACK_SERVER, *run)]

    def start(self, argv, cores):
        return self.topo.start(self.topo.server_ns, cores, argv, self.log)

    def wait_ready(self, case, address, setup):
        """Ask from the client's namespace until the ports answer."""
        probe = (
            f"import socket\nfor port in {cases.ports(case)}:\n"
            f" socket.create_connection(('{address}',port),1).close()"
        )
        for _ in range(50):
            done = self.topo.run(self.topo.client_ns, CLIENT_CORE, [sys.executable, "-c", probe], 5)
            if done.returncode == 0:
                return
            time.sleep(0.1)
        raise RuntimeError(f"{case.server} on {address} does not answer: see {self.log}")

    def client(self, case, setup, address, rate, spin):
        stack = []
        if setup == "b":
            stack = ["--if", "vc", "--ip", f"{STACK_CLIENT}/24", *spin]
        elif setup == "c" and address == STACK_SERVER:
            stack = ["--if", "vs", "--ip", f"{STACK_SERVER}/24", *spin]
        namespace = self.topo.server_ns if setup == "c" else self.topo.client_ns
        seconds = self.opts.seconds
        processes = []
        try:
            for port in cases.ports(case):
                argv = cases.client_command(case, address, port, rate, seconds, self.paths, stack)
                processes.append(self.topo.start_client(argv, namespace))
            time.sleep(WARM_S)
            frames = self.topo.frames()
            with measure.Cpu() as cpu:
                time.sleep(cases.client_seconds(case, self.opts.seconds) - WARM_S - END_S)
            frames = (self.topo.frames() - frames) / cpu.seconds
            said = [process.communicate(timeout=30) for process in processes]
        finally:
            for process in processes:
                self.topo.stop(process)
        for process, (out, errors) in zip(processes, said):
            if process.returncode != 0:
                raise RuntimeError((errors or out).strip()[-300:])
        return cases.together([cases.read_output(case, out) for out, _ in said]), cpu, frames

    def prepare_redis(self, case, address):
        if case.server == "redis":
            for port in cases.ports(case):
                words = ["redis-cli", "-h", address, "-p", str(port), "set", "bench:k", "xxx"]
                self.topo.run(self.topo.client_ns, CLIENT_CORE, words, 10)

    def measure_one(self, case, setup, placement):
        rate = 0
        spin = []
        if case.rate_share:
            rate = int(self.kernel_rate[setup, case.base] * case.rate_share)
            spin = ["--spin-us", "0"]
        address, processes = self.start_server(case, placement, spin)
        try:
            self.wait_ready(case, address, setup)
            self.prepare_redis(case, address)
            data, cpu, frames = self.client(case, setup, address, rate, spin)
            pids = [pid for p in processes for pid in measure.children_of(p.pid)]
            server_kib = measure.resident_kib(pids)
        finally:
            for process in reversed(processes):
                self.topo.stop(process)
            time.sleep(0.3)
        data |= {
            "setup": setup,
            "case": case.name,
            "placement": placement,
            "asked_rate": rate,
            "server_kib": server_kib,
            "cpu_us": cpu.cores * 1e6 / data["rate"] if data["rate"] else None,
            "frames": frames / data["rate"] if data["rate"] else None,
            "idle0": cpu.idle_share["cpu0"],
            "idle1": cpu.idle_share["cpu1"],
        }
        if placement == "kernel" and not case.rate_share:
            previous = self.kernel_rate.get((setup, case.name), 0)
            self.kernel_rate[setup, case.name] = max(previous, data["rate"])
        return data

    def all(self):
        results = []
        placements = self.opts.placement or list(report.PLACEMENTS)
        setups = ["a", "b"] if self.opts.setup == "both" else [self.opts.setup]
        words = self.opts.only.split(",")
        chosen = [c for c in cases.all_cases() if any(word in c.name for word in words)]
        raw = open(self.directory / "raw.jsonl", "w")
        for case in chosen:
            if not case.is_installed():
                print(f"{case.name}: {case.server} is not installed, left out", flush=True)
        chosen = [case for case in chosen if case.is_installed()]
        for setup in setups:
            for case in chosen:
                if case.rate_share and (setup, case.base) not in self.kernel_rate:
                    base = next(c for c in cases.all_cases() if c.name == case.base)
                    self.one(base, setup, "kernel", 0, results, raw)
                    if (setup, case.base) not in self.kernel_rate:
                        continue
                for run in range(self.opts.runs):
                    for placement in placements:
                        if placement == report.FLOOR and case.server not in cases.WITH_FLOOR:
                            continue
                        self.one(case, setup, placement, run, results, raw)
        return results

    def one(self, case, setup, placement, run, results, raw):
        label = f"({setup}) {case.name} {placement} run {run + 1}"
        try:
            data = self.measure_one(case, setup, placement)
        except (RuntimeError, ValueError, subprocess.TimeoutExpired) as error:
            print(f"{label}: FAILED: {error}", flush=True)
            data = {"setup": setup, "case": case.name, "placement": placement, "failed": str(error)}
        else:
            unit = "Gbit/s" if case.server == "iperf3" else "/s"
            print(
                (
                    f"{label}: {data['rate']:,.1f} {unit}, {data['cpu_us'] or 0:.2f} CPU-µs, "
                    f"{data['frames'] or 0:.2f} frames, p50 {data.get('p50_us', 0)}"
                ),
                flush=True,
            )
        results.append(data)
        raw.write(json.dumps(data) + "\n")
        raw.flush()


def main():
    opts = options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    stamp = time.strftime("%Y%m%d-%H%M%S")
    directory = pathlib.Path(opts.out or ROOT / "bench-results" / stamp).resolve()
    directory.mkdir(parents=True, exist_ok=True)
    commit = subprocess.run(
        ["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"], capture_output=True, text=True
    ).stdout.strip()
    meta = {
        "commit": commit,
        "kernel": platform.release(),
        "congestion": opts.congestion,
        "runs": opts.runs,
        "seconds": opts.seconds,
        "when": stamp,
    }
    with topology.Topology(opts.congestion) as topo:
        results = Bench(opts, topo, directory).all()
    report.write(results, meta, directory)
    return 1 if any("failed" in r for r in results) else 0


if __name__ == "__main__":
    sys.exit(main())

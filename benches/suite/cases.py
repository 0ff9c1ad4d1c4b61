"""The cases: which server, which client command, how its output is read."""

import json
import shutil
from dataclasses import dataclass, field

import names
from topology import CLIENT_CORE, SERVER_CORE


@dataclass
class Case:
    name: str
    server: str
    mode: str = ""
    connections: int = 1
    pipeline: int = 1
    rate_share: float = 0.0  # of the kernel's saturation rate; 0 = saturation
    base: str = ""  # the saturation case whose kernel rate is the reference
    reverse: bool = False  # iperf3: the server sends
    copies: int = 1  # servers, each on the next port with a client of its own
    workers: int = 1  # threads or processes that serve
    cores: str = SERVER_CORE  # where they may run
    extra: list = field(default_factory=list)

    @property
    def is_of_names(self):
        return self.server in names.SERVERS

    def is_installed(self):
        program = names.SERVERS[self.server][1][0] if self.is_of_names else self.server
        return self.server == "echo" or shutil.which(program) is not None


def all_cases():
    cases = []
    for mode, label in (("http", "nginx keep"), ("http-close", "nginx close")):
        for connections in (1, 64, 1000):
            cases.append(Case(f"{label} {connections}", "nginx", mode, connections))
    for mode in ("redis-get", "redis-set"):
        for pipeline in (1, 16):
            cases.append(Case(f"{mode} P{pipeline}", "redis", mode, 50, pipeline))
    # As many as Fastsocket's evaluation has for a core each.
    cases.append(Case("8 of redis-get P1", "redis", "redis-get", 8, copies=8))
    for base, mode, connections in (
        ("nginx keep 64", "http", 64),
        ("nginx close 64", "http-close", 64),
        ("redis-get P1", "redis-get", 50),
    ):
        server = "redis" if mode.startswith("redis") else "nginx"
        cases.append(Case(f"{base} @70%", server, mode, connections, 1, 0.7, base))
    cases.append(Case("ping-pong", "echo", "echo", 1, extra=["--size", "64"]))
    size = ["--size", "64"]
    cases.append(Case("UDP echo", "echo", "datagrams", 8, pipeline=8, extra=size))
    for workers in (1, 4):
        cases.append(Case(f"memcached -t {workers}", "memcached", "memcached", 32, workers=workers))
    for server in names.SERVERS:
        for workers in (1, 2):
            # A core for each: the second one's is the client's, too.
            cores = ",".join((SERVER_CORE, CLIENT_CORE)[:workers])
            cases.append(Case(f"{server} {workers}", server, workers=workers, cores=cores))
    cases.append(Case("iperf3 in", "iperf3"))
    cases.append(Case("iperf3 out", "iperf3", reverse=True))
    return cases


# What slipstack-load does before it measures.
LOAD_WARM_S = 0.5
PORTS = {"nginx": 8080, "redis": 6379, "echo": 7007, "iperf3": 5201, "memcached": 11211} | {
    server: names.PORT for server in names.SERVERS
}
# Servers that the placement `floor` has a replacement for.
WITH_FLOOR = ("nginx", "echo")
# Queries under way at a time, and the sockets that they leave from.
OUTSTANDING, SOCKETS = 200, 8
# A query without an answer for so long is lost: the last ones are waited for.
TIMEOUT_MS = 200


def ports(case):
    return [PORTS[case.server] + copy for copy in range(case.copies)]


def server_command(case, address, port, paths):
    server = case.server
    if case.is_of_names:
        return names.command(server, case.workers, address, paths["folder"])
    if server == "memcached":
        return ["memcached", "-u", "root", "-t", str(case.workers), "-p", str(port), "-U", "0"]
    if server == "nginx":
        return ["nginx", "-c", paths["nginx_conf"], "-g", "daemon off;"]
    if server == "redis":
        return [
            "redis-server",
            "--port",
            str(port),
            "--save",
            "",
            "--appendonly",
            "no",
            "--protected-mode",
            "no",
            "--bind",
            address,
        ]
    if server == "echo":
        return [paths["echo"], f"{address}:{port}"]
    return ["iperf3", "-s", "-p", str(port), "-B", address]


def client_seconds(case, seconds):
    """How long the client works, its warm-up included."""
    if case.is_of_names:
        return query_seconds(seconds)
    return int(max(seconds, 2)) if case.server == "iperf3" else LOAD_WARM_S + seconds


def query_seconds(seconds):
    """Whole seconds: dnsbench has no warm-up and counts from its first query."""
    return max(1, round(LOAD_WARM_S + seconds))


def client_command(case, address, port, rate, seconds, paths, stack=()):
    """The words that start the client; `stack`: the options of the stack that it is on."""
    if case.is_of_names:
        words = ["dnsbench", "-l", str(query_seconds(seconds)), "-q", str(OUTSTANDING)]
        words += ["-c", str(SOCKETS), "--timeout", str(TIMEOUT_MS)]
        words += ["--json", "--name", names.NAME]
        way = stack or ["--kernel"]
        return [paths["slipstack"], *words, *way, f"{address}:{port}"]
    before = [paths["slipstack"], "run", *stack, "--"] if stack else []
    return [*before, *program_command(case, address, port, rate, seconds, paths)]


def program_command(case, address, port, rate, seconds, paths):
    if case.server == "iperf3":
        argv = [
            "iperf3",
            "-c",
            address,
            "-p",
            str(port),
            "-t",
            str(client_seconds(case, seconds)),
            "-J",
        ]
        return argv + (["-R"] if case.reverse else [])
    return [
        paths["load"],
        f"{address}:{port}",
        "--mode",
        case.mode,
        "-c",
        str(case.connections),
        "--pipeline",
        str(case.pipeline),
        "-r",
        str(rate),
        "--warmup",
        str(LOAD_WARM_S),
        "-s",
        str(seconds),
        *case.extra,
    ]


def read_output(case, text):
    """→ dict with rate (requests/s, or Gbit/s for iperf3) and latencies"""
    data = json.loads(text)
    if case.is_of_names:
        return {
            "rate": data["answers_per_second"],
            "requests": data["answers"],
            "seconds": data["seconds"],
            "errors": data["timed_out"],
            "p50_us": data["latency_us"]["p50"],
            "p99_us": data["latency_us"]["p99"],
        }
    if case.server != "iperf3":
        return data
    if "error" in data:
        raise ValueError(data["error"])
    end = data["end"]
    return {
        "rate": end["sum_received"]["bits_per_second"] / 1e9,
        "requests": end["sum_received"]["bytes"] / 1e9,
        "seconds": end["sum_received"]["seconds"],
        "retransmits": end.get("sum_sent", {}).get("retransmits", 0),
    }


def together(outputs):
    """→ the clients' rates and counts, summed, and the worst of their times"""
    summed = ("rate", "requests", "errors")
    return {
        key: (sum if key in summed else max)(output[key] for output in outputs)
        for key in outputs[0]
    }


def nginx_conf(directory):
    return f"""
worker_processes 1;
pid {directory}/nginx.pid;
error_log {directory}/nginx.err;
events {{ worker_connections 8192; }}
http {{
    access_log off;
    keepalive_requests 1000000000;
    keepalive_timeout 600;
    server {{
        listen {PORTS['nginx']} backlog=4096;
        location / {{ default_type text/plain; return 200 "0123456789abcdef0123456789abcde\\n"; }}
        location /large {{ root {directory}; output_buffers 2 512k; }}
    }}
}}
"""

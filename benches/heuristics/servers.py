"""The servers and their clients. `slipstack-load` is the client of all but PostgreSQL."""

import json
import pathlib
import pwd
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass, field

import cases
import topology

POSTGRES = pathlib.Path("/usr/lib/postgresql/15/bin")
BOTH = f"{topology.SERVER_CORE},{topology.CLIENT_CORE}"
# Rules that hold only where threads share an engine, or only with spinning off.
OF_THREADS = ("moves",)
OF_SAVING = ("naps",)
# An instance's programs do not nap.
IN_PROCESS = ("naps",)


@dataclass
class Case:
    name: str
    port: int
    words: list
    load: list = field(default_factory=list)
    options: list = field(default_factory=list)
    before: list = field(default_factory=list)
    warm_s: float = 0.6
    has_threads: bool = False
    # Where its processes may run; those of several threads have both cores.
    cores: str = topology.SERVER_CORE

    def command(self, address):
        return [word.replace("ADDRESS", address) for word in self.words]

    def client(self, address, seconds):
        return [
            self.load[0],
            f"{address}:{self.port}",
            *self.load[1:],
            "--warmup",
            "0.4",
            "-s",
            str(seconds + 0.4),
        ]

    def read(self, text):
        return json.loads(text)

    def concerns(self, rule, placement, is_quick):
        """Whether the rule can matter; a quick run leaves out what can do so only in other
        cases."""
        is_saving = "--spin-us" in self.options
        if placement == "instance" and (rule in IN_PROCESS or is_quick and is_saving):
            return False
        if rule in OF_THREADS:
            return self.has_threads
        if rule in OF_SAVING:
            return is_saving
        return not (is_saving and rule == "spin")

    def wait_ready(self, topo, address):
        probe = f"import socket; socket.create_connection(('{address}', {self.port}), 1).close()"
        for _ in range(60):
            if (
                topo.run(
                    topo.client_ns, topology.CLIENT_CORE, [sys.executable, "-c", probe], 5
                ).returncode
                == 0
            ):
                return
            time.sleep(0.05)
        raise RuntimeError("does not answer")


class Postgres(Case):
    def client(self, address, seconds):
        self.logs = pathlib.Path(self.load[0])
        for old in self.logs.glob("tx.*"):
            old.unlink()
        prefix = str(self.logs / "tx")
        return [
            str(POSTGRES / "pgbench"),
            "-h",
            address,
            "-U",
            "postgres",
            "-S",
            "-n",
            "-c",
            "8",
            "-T",
            str(max(1, round(seconds + self.warm_s))),
            "-l",
            "--log-prefix",
            prefix,
            "postgres",
        ]

    def read(self, text):
        tps = float(text.split("tps = ")[1].split()[0])
        took = sorted(
            int(line.split()[2])
            for log in self.logs.glob("tx.*")
            for line in log.read_text().splitlines()
        )
        return {"rate": tps, "p50_us": took[len(took) // 2], "p99_us": took[len(took) * 99 // 100]}


def postgres(folder):
    """PostgreSQL with pgbench's tables, made on the kernel; None where it is not installed."""
    if not (POSTGRES / "pgbench").exists():
        return None
    data, logs = folder / "pg", folder / "logs"
    user = pwd.getpwnam("postgres")
    for made in (data, logs):
        made.mkdir()
        shutil.chown(made, user.pw_uid, user.pw_gid)
    as_user = ["setpriv", "--reuid", "postgres", "--regid", "postgres", "--init-groups"]
    quiet = {"check": True, "capture_output": True, "cwd": "/"}
    subprocess.run([*as_user, POSTGRES / "initdb", "-D", data, "-A", "trust", "-N"], **quiet)
    (data / "pg_hba.conf").write_text("host all all 0.0.0.0/0 trust\nlocal all all trust\n")
    words = [
        str(POSTGRES / "postgres"),
        "-D",
        str(data),
        "-c",
        f"unix_socket_directories={data}",
        "-c",
        "fsync=off",
    ]
    server = subprocess.Popen(
        [*as_user, *words, "-c", "listen_addresses="], cwd="/", stderr=subprocess.DEVNULL
    )
    try:
        for _ in range(100):
            if (
                subprocess.run(
                    [POSTGRES / "pg_isready", "-h", data], capture_output=True
                ).returncode
                == 0
            ):
                break
            time.sleep(0.1)
        subprocess.run(
            [POSTGRES / "pgbench", "-h", data, "-U", "postgres", "-i", "-q", "-s", "1", "postgres"],
            **quiet,
        )
    finally:
        server.terminate()
        server.wait(20)
    case = Postgres("PostgreSQL", 5432, [*as_user, *words, "-c", "listen_addresses=ADDRESS"])
    case.load = [str(logs)]
    case.warm_s = 0.5
    case.cores = BOTH
    return case


def all_cases(folder, target, is_wanted):
    """The cases whose name `is_wanted`. PostgreSQL's tables take a while to make."""
    load = str(target / "slipstack-load")
    (folder / "large").write_bytes(bytes(1 << 20))
    conf = folder / "nginx.conf"
    conf.write_text(cases.nginx_conf(folder))
    nginx = ["nginx", "-c", str(conf), "-g", "daemon off; master_process off;"]
    redis = [
        "redis-server",
        "--port",
        "6379",
        "--save",
        "",
        "--protected-mode",
        "no",
        "--bind",
        "ADDRESS",
    ]
    memcached = ["memcached", "-u", "root", "-p", "11211", "-l", "ADDRESS"]
    saving = ["--spin-us", "0"]
    found = [
        Case("nginx keep-alive 64", 8080, nginx, [load, "--mode", "http", "-c", "64"]),
        Case("nginx close 64", 8080, nginx, [load, "--mode", "http-close", "-c", "64"]),
        Case(
            "nginx keep-alive 64 (spinning off)",
            8080,
            nginx,
            [load, "--mode", "http", "-c", "64"],
            saving,
        ),
        Case(
            "nginx close 64 (spinning off)",
            8080,
            nginx,
            [load, "--mode", "http-close", "-c", "64"],
            saving,
        ),
        Case(
            "nginx 1 MiB 8",
            8080,
            nginx,
            [load, "--mode", "http", "-c", "8", "--path", "/large"],
        ),
        Case("redis GET 50", 6379, redis, [load, "--mode", "redis-get", "-c", "50"]),
        Case("redis SET 50", 6379, redis, [load, "--mode", "redis-set", "-c", "50"]),
        Case(
            "memcached -t 1",
            11211,
            [*memcached, "-t", "1"],
            [load, "--mode", "memcached", "-c", "8"],
            has_threads=True,
        ),
        Case(
            "memcached -t 4",
            11211,
            [*memcached, "-t", "4"],
            [load, "--mode", "memcached", "-c", "8"],
            has_threads=True,
        ),
    ]
    for case in found:
        if case.has_threads:
            case.cores = BOTH
    last = postgres(folder) if is_wanted("PostgreSQL") else None
    return [case for case in found if is_wanted(case.name)] + ([last] if last else [])

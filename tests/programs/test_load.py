"""`slipstack bench` and `slipstack htstress`, on the kernel and on the stack."""

import json
import re
import signal
import time

from harness import test
from harness.process import until
from test_serve import ALONE, serve


def bench(world, start, target, *more):
    out, svg = world.folder / "bench.txt", world.folder / "bench.svg"
    done = start("bench", "-n", 200, "-r", 3, "--json", "--out", out, "--svg", svg, *more, target)
    assert done.wait(30) == 0, done.tail()
    assert "200 connections, 3 rounds, 0 failed" in done.errors(), done.tail()
    assert "1 of 3 rounds" in done.errors() and "2 of 3 rounds" in done.errors(), done.tail()
    told = json.loads(done.output())
    assert told["connections"] == 200 and told["failed"] == 0, told
    shares = ("min", "p50", "p90", "p99", "p99.9", "p99.99", "max")
    times = [told["latency_us"][share] for share in shares]
    assert 0 < times[0] and times == sorted(times), told
    lines = out.read_text().splitlines()
    assert len(lines) == 200 and all(re.fullmatch(r"\d+ \d+", line) for line in lines)
    assert svg.read_text().count("<circle") == 200


def stress(start, target, *more):
    done = start("htstress", *more, target)
    assert done.wait(30) == 0, done.tail()
    found = re.search(
        r"requests: +(\d+)\ngood requests: +(\d+) \[\d+%\]\nbad requests: +(\d+) \[\d+%\]\n"
        r"socket errors: +(\d+) \[\d+%\]\nseconds: +[\d.]+\nrequests/sec: +[\d.]+\n",
        done.output(),
    )
    assert found, done.tail()
    return [int(count) for count in found.groups()]


def at_peer(world):
    """Starts one of our commands at the peer, on the kernel's sockets."""
    return lambda command, *words: world.peer(world.slipstack, command, "--kernel", *words)


def on_stack(world):
    def start(command, *words):
        own = ["--run-dir", world.run_dir, *world.device_options()]
        return world.beside(world.slipstack, command, *own, *words)

    return start


@test(modes=ALONE)
def bench_from_the_kernel_finds_every_answer(world):
    serve(world, "echo", "--port", 7000)
    world.wait_port(7000)
    bench(world, at_peer(world), f"{world.address}:7000")


@test(modes=ALONE)
def bench_on_the_stack_finds_every_answer(world):
    world.peer(*world.program("asyncio_echo.py"), "server", "0.0.0.0", 7000)
    world.wait_port(7000, address=world.peer_address)
    bench(world, on_stack(world), f"{world.peer_address}:7000")


@test(modes=ALONE)
def bench_counts_refused_requests(world):
    done = at_peer(world)("bench", "-n", 10, "-r", 1, "--out", world.folder / "x", "127.0.0.1:9")
    assert done.wait(20) == 1
    assert "10 failed" in done.errors(), done.tail()
    for port in ("0", "99999", "x"):
        done = at_peer(world)("bench", "-n", 10, f"127.0.0.1:{port}")
        assert done.wait(10) == 1, done.tail()
        assert f'"{port}" is not a port between 1 and 65535' in done.errors(), done.tail()


@test(modes=ALONE)
def htstress_from_the_kernel_counts_good_and_bad(world):
    root = world.folder / "www"
    root.mkdir()
    (root / "hello").write_text("hello\n")
    serve(world, "http", root, "--port", 8081)
    world.wait_port(8081)
    url = f"http://{world.address}:8081"
    assert stress(at_peer(world), f"{url}/hello", "-n", 2000, "-c", 20, "-t", 2) == [
        2000,
        2000,
        0,
        0,
    ]
    assert stress(at_peer(world), f"{url}/hello", "-n", 2000, "-c", 20, "--keep-alive") == [
        2000,
        2000,
        0,
        0,
    ]
    assert stress(at_peer(world), f"{url}/none", "-n", 100, "-c", 5, "-h", "x") == [100, 0, 100, 0]
    assert stress(at_peer(world), "http://127.0.0.1:9/", "-n", 50, "-c", 5) == [50, 0, 0, 50]


@test(modes=ALONE)
def htstress_sweeps_threads_and_connections(world):
    root = world.folder / "www"
    root.mkdir()
    (root / "hello").write_text("hello\n")
    serve(world, "http", root, "--port", 8081)
    world.wait_port(8081)
    svg = world.folder / "rates.svg"
    words = [
        "-n",
        300,
        "-t",
        "1,2",
        "-c",
        "1,5,20",
        "--svg",
        svg,
        f"http://{world.address}:8081/hello",
    ]
    done = at_peer(world)("htstress", *words)
    assert done.wait(60) == 0, done.tail()
    rows = [line.split() for line in done.output().splitlines()]
    assert [row[:2] for row in rows[1:]] == [
        [t, c] for t in "12" for c in ("1", "5", "20")
    ], done.tail()
    assert all(float(row[2]) > 0 and row[5] == "0" for row in rows[1:]), rows
    text = svg.read_text()
    assert text.count("<polyline") == 2 and text.count("<circle") == 6, text
    done = at_peer(world)("htstress", "--json", *words)
    assert done.wait(60) == 0, done.tail()
    found = json.loads(done.output())
    assert [row["good"] for row in found] == [300] * 6, found
    endless = at_peer(world)("htstress", "-c", "1,2", f"http://{world.address}:8081/hello")
    assert endless.wait(10) != 0 and "need -n" in endless.errors(), endless.tail()


@test(modes=ALONE)
def htstress_on_the_stack_counts_good_and_bad(world):
    (world.folder / "hello").write_text("hello\n")
    world.peer("/usr/bin/python3", "-m", "http.server", 8000, cwd=world.folder)
    world.wait_port(8000, address=world.peer_address)
    url = f"http://{world.peer_address}:8000"
    assert stress(on_stack(world), f"{url}/hello", "-n", 200, "-c", 10) == [200, 200, 0, 0]
    assert stress(on_stack(world), f"{url}/none", "-n", 50, "-c", 5) == [50, 0, 50, 0]


@test(modes=ALONE)
def htstress_at_a_constant_rate_counts_the_time_that_requests_waited(world):
    root = world.folder / "www"
    root.mkdir()
    (root / "hello").write_text("hello\n")
    server = serve(world, "http", root, "--port", 8081)
    world.wait_port(8081)
    found = {}
    for name, more in (("kept", ["--keep-alive"]), ("new", [])):
        words = [
            "--json",
            "--rate",
            500,
            "-n",
            250,
            "-c",
            20,
            *more,
            f"http://{world.address}:8081/hello",
        ]
        done = at_peer(world)("htstress", *words)
        if name == "kept":
            # It is stopped for 200 ms of the half second: every request that was due then is late.
            until(server.is_running, 1, "it runs")
            server.signal(signal.SIGSTOP)
            time.sleep(0.2)
            server.signal(signal.SIGCONT)
        assert done.wait(30) == 0, done.tail()
        found[name] = json.loads(done.output())
        assert found[name]["requests"] == found[name]["good"] == 250, found
        assert found[name]["seconds"] > 0.45, found
        assert found[name]["latency_us"]["p50"] <= found[name]["latency_us"]["max"]
    assert found["kept"]["latency_us"]["max"] > 100_000, found

"""`slipstack dnsbench`, on the kernel and on the stack."""

import json
import signal
import time

from harness import test
from harness.process import until
from test_load import at_peer, on_stack
from test_serve import ALONE
from test_serve_dns import mixed, start, start_nsd

QUERIES = (
    "; name and type\nweb.example.test A\nnone.example.test A\n\nmail.example.test"
    " AAAA\nelsewhere.test. mx\n"
)


def found(done):
    assert done.wait(30) == 0, done.tail()
    return json.loads(done.output())


def queries(world):
    path = world.folder / "queries"
    path.write_text(QUERIES)
    return path


@test(modes=ALONE)
def dnsbench_from_the_kernel_counts_answers_by_their_code(world):
    start(world)
    told = found(
        at_peer(world)(
            "dnsbench", "-d", queries(world), "-n", 4000, "-q", 20, "-t", 2, "--json", world.address
        )
    )
    assert (
        told["queries"] == told["answers"] == 4000 and told["timed_out"] == told["unexpected"] == 0
    ), told
    assert sum(told["rcodes"].values()) == 4000 and 1900 <= told["rcodes"]["NOERROR"] <= 2100, told
    assert (
        900 <= told["rcodes"]["NXDOMAIN"] <= 1100 and 900 <= told["rcodes"]["REFUSED"] <= 1100
    ), told
    assert (
        0 < told["latency_us"]["p50"] <= told["latency_us"]["p99"] <= told["latency_us"]["max"]
    ), told
    done = at_peer(world)(
        "dnsbench", "--name", "big.example.test", "--type", "txt", "-n", 100, f"{world.address}:53"
    )
    assert done.wait(30) == 0 and "truncated:     100\n" in done.output(), done.tail()
    assert (
        "queries:       100\nanswers:       100 [100%]\ntime-outs:     0 [0%]\nNOERROR:       100"
        " [100%]\n" in done.output()
    ), done.tail()


@test(modes=ALONE)
def dnsbench_on_the_stack_asks_a_server_on_the_kernel(world):
    start(world)
    start_nsd(world, {"example.test": world.folder / "zone"})
    told = found(
        on_stack(world)(
            "dnsbench",
            "-d",
            queries(world),
            "-n",
            2000,
            "--edns",
            1232,
            "--dnssec",
            "--json",
            f"{world.PEER}:5300",
        )
    )
    assert told["queries"] == told["answers"] == 2000, told
    assert told["rcodes"] == {"NOERROR": 1000, "NXDOMAIN": 500, "REFUSED": 500}, told


@test(modes=ALONE)
def dnsbench_counts_unanswered_queries(world):
    began = time.monotonic()
    done = at_peer(world)(
        "dnsbench", "--name", "x", "-n", 20, "-q", 7, "--timeout", 100, "--json", "127.0.0.1:9"
    )
    assert done.wait(20) == 1, done.tail()
    told = json.loads(done.output())
    assert told["queries"] == told["timed_out"] == 20 and told["answers"] == 0, told
    assert time.monotonic() - began < 5


@test(modes=ALONE)
def dnsbench_at_a_constant_rate_counts_the_time_that_queries_waited(world):
    zone = world.folder / "zone"
    zone.write_text(mixed())
    server = world.process(
        world.peer_ns.prefix()
        + [
            str(world.slipstack),
            "serve",
            "dns",
            "--kernel",
            "--port",
            "5353",
            "--zone",
            f"example.test={zone}",
        ]
    )
    until(lambda: "is served" in server.output() or not server.is_running(), 10, "it listens")
    done = at_peer(world)(
        "dnsbench",
        "--name",
        "web.example.test",
        "--rate",
        1000,
        "-l",
        1,
        "-q",
        50,
        "--json",
        f"{world.PEER}:5353",
    )
    time.sleep(0.4)
    # It is stopped for 200 ms: 200 queries are due then, of which 50 are under way.
    server.signal(signal.SIGSTOP)
    time.sleep(0.2)
    server.signal(signal.SIGCONT)
    told = found(done)
    assert (
        980 <= told["queries"] == told["answers"] <= 1000
        and told["not_sent"] + told["queries"] >= 980
    ), told
    assert told["latency_us"]["max"] > 150_000 and told["latency_us"]["p90"] > 20_000, told


@test(modes=ALONE)
def dnsbench_names_errors_of_its_input(world):
    bad = world.folder / "bad"
    bad.write_text("a.test A\nb.test NOTYPE\n")
    for words, said in (
        (["-d", bad, "127.0.0.1"], "line 2: NOTYPE is no record type"),
        (["-d", world.folder / "none", "127.0.0.1"], "cannot be read"),
        (["127.0.0.1"], "--data"),
        (["--name", "a..b", "127.0.0.1"], "a..b is no domain name"),
        (["--name", "a", "-q", 100_000, "-c", 1, "127.0.0.1"], "-c 4 or more"),
    ):
        done = at_peer(world)("dnsbench", *words)
        assert done.wait(10) != 0 and said in done.errors(), done.tail()

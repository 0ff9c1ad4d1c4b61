"""Datagrams that the engine answers, or workers, or both."""

import os
import re
import signal
import socket
import sys
import time
from pathlib import Path

from harness import test
from harness.process import until
from harness.world import ROOT
from test_serve import ALONE, serve

sys.path.append(str(ROOT / "tests" / "dns"))

from message import TYPES, question  # noqa: E402
from servers import ask  # noqa: E402
from zones import NAMES, mixed  # noqa: E402

PORT = 7000


def client(world):
    with world.peer_ns.inside():
        sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
    sock.settimeout(5)
    sock.connect((world.STACK, PORT))
    return sock


def at_once(server, sock, datagrams):
    """Sends datagrams that the server finds waiting."""
    server.signal(signal.SIGSTOP)
    for datagram in datagrams:
        sock.send(datagram)
    server.signal(signal.SIGCONT)


def exchange(server, sock, rounds, count, length=32):
    """Bursts whose datagrams are all echoed."""
    for number in range(rounds):
        sent = {b"%d/%d " % (number, at) + os.urandom(length) for at in range(count)}
        at_once(server, sock, sorted(sent))
        assert {sock.recv(65536) for _ in range(count)} == sent


def ended(server):
    """The counters of engines and workers: two tuples."""
    server.signal(signal.SIGTERM)
    assert server.wait(10) == 0, server.tail()
    text = server.output()
    engines = re.search(
        r"engines: (\d+) datagrams, (\d+) answered by themselves, (\d+) passed on, (\d+) dropped",
        text,
    )
    workers = re.findall(
        (
            r"worker \d+: (\d+) datagrams in (\d+) bursts of up to (\d+), (\d+) % of them in bursts"
            r" of 8 or more; (\d+) answers"
        ),
        text,
    )
    assert engines, text
    return [int(figure) for figure in engines.groups()], [
        [int(figure) for figure in row] for row in workers
    ]


@test(modes=ALONE)
def workers_answer_equal_shares_in_bursts(world):
    server = serve(world, "echo", "--port", PORT, "--workers", 3, "--shape", "pipeline")
    with client(world) as sock:
        exchange(server, sock, 20, 96)
        exchange(server, sock, 1, 3, length=8000)
    engines, workers = ended(server)
    assert engines == [1923, 0, 1923, 0] and len(workers) == 3, (engines, workers)
    for datagrams, _, largest, large, answers in workers:
        assert 400 <= datagrams == answers <= 900 and largest >= 8 and large >= 50, workers


@test(modes=ALONE)
def the_engine_keeps_the_share_that_it_is_given(world):
    server = serve(world, "echo", "--port", PORT, "--workers", 3, "--shape", "mixed", "--share", 25)
    with client(world) as sock:
        exchange(server, sock, 10, 96)
    engines, workers = ended(server)
    assert engines == [960, 240, 720, 0] and all(180 <= row[0] <= 300 for row in workers), (
        engines,
        workers,
    )


@test(modes=ALONE)
def the_engine_answers_short_requests_itself(world):
    server = serve(
        world, "echo", "--port", PORT, "--workers", 2, "--shape", "mixed", "--mixed-max", 100
    )
    with client(world) as sock:
        exchange(server, sock, 2, 50, length=10)
        exchange(server, sock, 3, 50, length=1000)
    engines, workers = ended(server)
    assert engines == [250, 100, 150, 0] and sum(row[0] for row in workers) == 150, (
        engines,
        workers,
    )


@test(modes=ALONE)
def datagrams_that_find_the_ring_full_are_dropped_and_counted(world):
    server = serve(
        world, "echo", "--port", PORT, "--workers", 1, "--shape", "pipeline", "--ring", 4
    )
    with client(world) as sock:
        for _ in range(5):
            at_once(server, sock, [b"x"] * 200)
            time.sleep(0.05)
        sock.setblocking(False)
        answers = 0
        while True:
            try:
                answers += len(sock.recv(100))
            except BlockingIOError:
                break
        sock.settimeout(5)
        sock.send(b"still there")
        assert sock.recv(100) == b"still there"
    (all_of_them, own, passed, full), workers = ended(server)
    assert own == 0 and full > 0 and passed + full == all_of_them == 1001, (
        all_of_them,
        passed,
        full,
    )
    assert workers[0][4] == passed == answers + 1, (workers, passed, answers)


@test(modes=ALONE)
def workers_sleep_when_nothing_comes(world):
    server = serve(world, "echo", "--port", PORT, "--workers", 2, "--shape", "pipeline")
    with client(world) as sock:
        exchange(server, sock, 2, 50)
    before = ticks(server.pid)
    assert len(before) == 2, before
    time.sleep(0.5)
    assert ticks(server.pid) == before


def ticks(pid):
    """Time that the threads which answer have used, by number."""
    found = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        fields = (task / "stat").read_text().rpartition(")")
        if "answerer" in fields[0]:
            found[task.name] = sum(map(int, fields[2].split()[11:13]))
    return found


@test(modes=ALONE)
def a_name_servers_answers_are_the_same_in_each_shape(world):
    zone = world.folder / "zone"
    zone.write_text(mixed())
    found = []
    for words in (["run"], ["pipeline"], ["mixed"], ["mixed", "--share", 30]):
        server = serve(
            world,
            "dns",
            "--zone",
            f"example.test={zone}",
            "--port",
            53,
            "--workers",
            2,
            "--shape",
            *words,
        )
        answers = []
        # The second time some are ready.
        for ident, name in enumerate(NAMES[1:21] * 3):
            for qtype in (TYPES["A"], TYPES["TXT"]):
                answers.append(
                    ask(world, world.STACK, 53, question(f"{name}.example.test", qtype, ident))
                )
        found.append(answers)
        server.signal(signal.SIGTERM)
        assert server.wait(10) == 0, server.tail()
        if words == ["mixed"]:
            figures = re.search(
                (
                    r"engines: (\d+) datagrams, (\d+) answered by themselves, (\d+) passed on,"
                    r" (\d+) dropped"
                ),
                server.output(),
            )
            total, own, passed, full = map(int, figures.groups())
            # New questions are passed on, 38 of them, and one now and then whose mark another has
            # overwritten.
            assert (
                own + passed == total == 120 and 38 <= passed <= 46 and full == 0
            ), server.output()
    assert all(answers == found[0] for answers in found[1:])


@test(modes=ALONE)
def every_shape_serves_on_the_kernels_sockets(world):
    server = world.peer(
        world.slipstack,
        "serve",
        "echo",
        "--kernel",
        "--port",
        PORT,
        "--workers",
        2,
        "--shape",
        "pipeline",
    )
    until(
        lambda: "is served on the kernel" in server.output() or not server.is_running(),
        10,
        "it listens",
    )
    with world.peer_ns.inside():
        sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with sock:
        sock.settimeout(5)
        sock.connect((world.PEER, PORT))
        exchange(server, sock, 3, 50)
    engines, workers = ended(server)
    assert engines == [150, 0, 150, 0] and all(row[0] > 20 for row in workers), (engines, workers)


@test(modes=ALONE)
def impossible_shapes_are_refused(world):
    for words, said in (
        (["--shape", "pipeline", "--workers", 0], "--workers 1 or more"),
        (["--share", 25], "needs --shape mixed"),
        (["--shape", "mixed", "--share", 101], "0..=100"),
        (["--shape", "pipeline", "--ring", 0], "1..=65536"),
    ):
        refused = world.beside(world.slipstack, "serve", "echo", "--kernel", "--port", PORT, *words)
        assert refused.wait(10) != 0 and said in refused.errors(), refused.tail()

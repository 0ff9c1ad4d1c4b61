"""Forks beside connections: nothing is lost, and nothing stays."""

import contextlib
import json
import os
import random
import selectors
import signal
import socket
import subprocess
from collections import Counter
from pathlib import Path

from harness import test
from harness.process import rss_kib, until
from harness.world import PROGRAMS

PORT = 7260
CONNECTIONS = FORKS = 1000
SIZE_MAX = 600
# Children, each with a connection of its own.
ROW = 80
# Rings become memory when they are used.
GROWTH_KIB = 4096


class Visitor:
    """Sends one line after the other, each when the one before has come back."""

    def __init__(self, world, number):
        self.sock = socket.create_connection((world.address, PORT), timeout=10)
        self.random = random.Random(number)
        self.number = number
        self.rounds = 0
        self.ask()

    def ask(self):
        self.wanted = b"%d.%d " % (self.number, self.rounds)
        self.wanted += self.random.randbytes(self.random.randrange(SIZE_MAX))
        self.came = b""
        self.sock.sendall(self.wanted)

    def hear(self):
        """Returns whether an answer has come whole."""
        part = self.sock.recv(65536)
        assert part, f"connection {self.number} ended in round {self.rounds}"
        self.came += part
        assert self.wanted.startswith(self.came), f"connection {self.number} got other bytes"
        self.rounds += self.came == self.wanted
        return self.came == self.wanted


def answered(visitors, until_over):
    """Has the visitors ask until it is over, and then hears all answers."""
    with selectors.DefaultSelector() as waits:
        for visitor in visitors:
            waits.register(visitor.sock, selectors.EVENT_READ, visitor)
        left = len(visitors)
        while left:
            found = waits.select(10)
            assert found, f"{left} connections get no answer"
            for key, _ in found:
                if not key.data.hear():
                    continue
                if until_over():
                    waits.unregister(key.fileobj)
                    left -= 1
                else:
                    key.data.ask()


def used(world, server):
    """What must be as before the forks: descriptors and threads of the server, descriptors of the
    keeper, slots; and the keeper's memory."""
    counts = [len(os.listdir(f"/proc/{server.pid}/{kind}")) for kind in ("fd", "task")]
    if world.mode == "kernel":
        return counts, 0
    (seen,) = json.loads(world.admin("status", "--json").output())
    keeper = seen["keeper_pid"]
    counts += [len(os.listdir(f"/proc/{keeper}/fd")), seen["device"]["slots_leased"]]
    return counts, rss_kib(keeper)


def children(server):
    tasks = Path(f"/proc/{server.pid}/task").glob("*/children")
    return sorted(child for task in tasks for child in task.read_text().split())


@test(timeout=180)
def a_server_forks_every_millisecond_beside_a_thousand_connections(world):
    program = world.folder / "forks_beside"
    subprocess.run(["gcc", "-Wall", "-o", program, PROGRAMS / "forks_beside.c"], check=True)
    server = world.stack(program, PORT, FORKS)
    world.wait_port(PORT, process=server)
    with world.at_peer():
        visitors = [Visitor(world, number) for number in range(CONNECTIONS)]
    answered(visitors, lambda: True)
    before, kib_before = used(world, server)
    children_before = children(server)
    server.signal(signal.SIGUSR1)
    for visitor in visitors:
        visitor.ask()
    answered(visitors, lambda: "forked" in server.output())
    assert server.is_running(), server.tail()
    _, forks, took_ms = server.output().split()
    print(f"{forks} forks beside {CONNECTIONS} connections in {took_ms} ms", flush=True)
    assert int(forks) == FORKS and children(server) == children_before
    # The steward's doorbell is kept for the next one.
    most = [before[0] + 1, *before[1:]]

    def is_given_back():
        return all(now <= most_now for now, most_now in zip(used(world, server)[0], most))

    until(is_given_back, 5, f"{before} descriptors, threads, … again")
    grown = used(world, server)[1] - kib_before
    assert grown < GROWTH_KIB, f"the keeper has {grown} KiB more"


@test
def children_of_a_program_with_busy_threads_use_all_its_sockets(world):
    program = world.folder / "forks_among_threads"
    source = PROGRAMS / "forks_among_threads.c"
    subprocess.run(["gcc", "-Wall", "-pthread", "-o", program, source], check=True)
    started = world.stack(program, 500, world.peer_address)
    until(lambda: not started.is_running(), 50, "all children have ended")
    assert "done" in started.output(), started.tail()


# Pages that a poll of a child touches for the first time: code and stack, but no buffer.
FAULTS_MAX = 10


@test
def a_child_that_polls_makes_no_buffers_for_it(world):
    program = world.folder / "brief_children"
    subprocess.run(["gcc", "-Wall", "-o", program, PROGRAMS / "brief_children.c"], check=True)
    server = world.stack(program, PORT)
    world.wait_port(PORT, process=server)
    for _ in range(5):
        with world.connect(PORT) as sock:
            sock.sendall(b"line\n")
            _, faults = sock.makefile().readline().split()
        assert int(faults) <= FAULTS_MAX, f"{faults} page faults in one poll"


CLOSED_BY_A_GRANDCHILD = """
import os, socket, time
with socket.create_server(("0.0.0.0", 7120)) as listener:
    sock, _ = listener.accept()
sock.recv(1)
if os.fork() == 0:
    if os.fork() == 0:
        print(os.getpid(), flush=True)
        os.closerange(3, 1000)
        time.sleep(20)
    os._exit(0)
os.wait()
sock.close()
time.sleep(20)
"""


@test
def a_connection_ends_though_a_grandchild_that_has_closed_it_unused_lives_on(world):
    server = world.stack("/usr/bin/python3", "-c", CLOSED_BY_A_GRANDCHILD)
    world.strays.append(lambda: int(server.output() or 0))
    until(lambda: "is reached at" in server.errors() or world.mode == "kernel", 10, "it is up")
    sock = until(lambda: connected(world), 10, "the server listens")
    with sock:
        sock.sendall(b"x")
        sock.settimeout(5)
        assert sock.recv(1) == b""


def connected(world):
    try:
        return world.connect(7120)
    except ConnectionRefusedError:
        return None


@test
def children_do_not_keep_what_is_on_its_way_to_other_children(world):
    """Each begins to use its connection while others are forked."""
    started = world.stack(*world.program("row_of_children.py"), world.address, PORT + 1, ROW)
    # Each has one more, with which it is looked whether the port is open.
    world.wait_port(PORT + 1, process=started)
    with contextlib.ExitStack() as ends:
        socks = [ends.enter_context(world.connect(PORT + 1, 5)) for _ in range(ROW - 1)]
        until(lambda: "begun" in started.output(), 20, "all children have begun")
        for sock in socks:
            sock.sendall(b"there?")
            assert sock.recv(100) == b"there?"
        check_few_have(started)


def check_few_have(started):
    """A socket of one process's is not in a few of its children too."""
    found = [sockets_of(pid) for pid in [started.pid, *started.children()]]
    # One has ended.
    living = sum(bool(sockets) for sockets in found)
    owners = Counter(name for sockets in found for name in sockets)
    few = {name: count for name, count in owners.items() if 1 < count < living - 1}
    assert not few, f"sockets that a few of {living} processes have: {few}"


def sockets_of(pid):
    found = set()
    for file in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            found.add(os.readlink(file))
    return {name for name in found if name.startswith("socket:")}

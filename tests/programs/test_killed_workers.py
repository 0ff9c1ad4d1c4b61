"""Clients of workers that are killed: on the kernel the listening socket that the workers share
keeps the connections that none of them has accepted, open and half-open ones."""

import contextlib
import socket
import subprocess
import threading
import time

from harness import test
from harness.process import until

PORT = 7490
CLIENTS = 12
KILLS = 12
LIMIT_S = 10
# Longer than the time after which a first segment is repeated; a lost SYN takes a second.
FIRST_S = 0.9


class Workers:
    def __init__(self, world, count, *how):
        words = [*world.program("killed_workers.py"), PORT, count, *how]
        self.started = world.stack(*words, stdin=subprocess.PIPE)
        self.address = world.STACK6 if "ipv6" in how else world.address
        world.wait_port(PORT, process=self.started, address=self.address)
        self.world, self.count, self.killed = world, count, []

    def settle(self):
        """Waits until all workers have answered, or for a second, as on the kernel some may have
        nothing to do."""
        seen, end = set(), time.monotonic() + 1
        while len(seen) < self.count and time.monotonic() < end:
            with self.world.connect(PORT, LIMIT_S, self.address) as sock:
                sock.sendall(b"question")
                seen.add(answer(sock))
            seen -= set(self.killed)

    def kill(self):
        """Kills the oldest worker, and returns its number."""
        self.started.child.stdin.write(b"\n")
        self.started.child.stdin.flush()
        count = len(self.killed) + 1
        until(lambda: len(self._output()) > count, 10, "a worker has been killed")
        self.killed = self._output()[1:]
        return self.killed[-1]

    def _output(self):
        return self.started.output().split()


def answer(sock):
    """The number of the worker that has answered."""
    pid, _, question = sock.makefile("rb").read().partition(b" ")
    assert question == b"question", (pid, question)
    return pid.decode()


def half_open_connections_go_on(world, workers, count=24):
    """TCP_DEFER_ACCEPT: without a question a connection stays half-open."""
    with contextlib.ExitStack() as stack:
        for _ in range(2):
            workers.settle()
            socks = [
                stack.enter_context(world.connect(PORT, LIMIT_S, workers.address))
                for _ in range(count)
            ]
            killed = workers.kill()
            began = time.monotonic()
            for sock in socks:
                sock.sendall(b"question")
            answered = [answer(sock) for sock in socks]
            assert killed not in answered
            took = time.monotonic() - began
            assert took < FIRST_S, f"answered after {took:.2f} s"


@test
def half_open_connections_of_a_killed_worker_go_to_another(world):
    workers = Workers(world, 3, "deferred", "alone")
    half_open_connections_go_on(world, workers)


@test
def half_open_connections_of_the_only_worker_wait_for_its_successor(world):
    workers = Workers(world, 1, "deferred")
    half_open_connections_go_on(world, workers)


@test
def half_open_connections_of_a_killed_worker_go_to_another_over_ipv6(world):
    world.use_ipv6()
    workers = Workers(world, 3, "deferred", "alone", "ipv6")
    half_open_connections_go_on(world, workers)


@test
def half_open_connections_of_a_killed_worker_stay_in_a_group(world):
    workers = Workers(world, 3, "deferred", "reuseport")
    half_open_connections_go_on(world, workers)


@test
def half_open_connections_of_a_killed_program_end(world):
    """The last process that holds the listening socket is killed too."""
    workers = Workers(world, 1, "deferred", "alone")
    workers.settle()
    socks = [world.connect(PORT, LIMIT_S, workers.address) for _ in range(24)]
    workers.kill()
    workers.started.kill()
    for sock in socks:
        with sock:
            try:
                sock.sendall(b"question")
                got = sock.recv(100)
            except (ConnectionResetError, BrokenPipeError):
                continue
            raise AssertionError(f"{got!r} instead of a reset")


class Asking:
    """Clients that ask one question on each connection, as fast as they can."""

    def __init__(self, world, address):
        self.world, self.address = world, address
        self.done, self.slow, self.failures = 0, [], []
        self.is_over = threading.Event()
        self.threads = [threading.Thread(target=self._loop) for _ in range(CLIENTS)]

    def _loop(self):
        with self.world.at_peer():
            while not self.is_over.is_set():
                began = time.monotonic()
                state = "connecting"
                try:
                    with socket.create_connection((self.address, PORT), LIMIT_S) as sock:
                        state = "connected"
                        sock.sendall(b"question")
                        answer(sock)
                    self.done += 1
                except (OSError, AssertionError) as error:
                    self.failures.append((state, repr(error)))
                if time.monotonic() - began > FIRST_S:
                    self.slow.append(round(time.monotonic() - began, 2))

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.is_over.set()
        for thread in self.threads:
            thread.join(2 * LIMIT_S)


def no_client_fails(world, *how):
    workers = Workers(world, 3, *how)
    with Asking(world, workers.address) as asking:
        for _ in range(KILLS):
            time.sleep(0.1)
            workers.kill()
        time.sleep(0.1)
    assert asking.done > 10 * KILLS
    failures = asking.failures
    assert not failures, (asking.done, len(failures), failures[:5], asking.slow)


@test
def no_client_of_killed_workers_fails(world):
    no_client_fails(world)


@test
def no_client_of_killed_workers_fails_over_ipv6(world):
    world.use_ipv6()
    no_client_fails(world, "ipv6")


@test
def no_client_of_killed_workers_of_a_group_fails(world):
    no_client_fails(world, "reuseport")

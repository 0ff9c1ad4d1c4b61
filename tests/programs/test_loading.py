"""Servers that listen, then load data, then accept: clients connect at once and nothing is lost."""

import contextlib
import os
import signal
import socket
import time

from harness import test
from harness.http import is_reset
from harness.process import children, until

PORT = 7300
LOADS = 1.5


def loading(world, how, seconds=LOADS):
    started = world.stack(*world.program("loading.py"), PORT, seconds, how)
    until(lambda: "listens" in started.output(), 10, "it listens")
    return started


def connected(world, stack, count, address=None, port=PORT):
    began = time.monotonic()
    clients = (world.connect(port, 10, address) for _ in range(count))
    socks = [stack.enter_context(client) for client in clients]
    assert time.monotonic() - began < 0.8, "they connect while it loads"
    return socks


def are_answered(socks):
    for number, sock in enumerate(socks):
        sock.sendall(b"%d\n" % number)
    for number, sock in enumerate(socks):
        with sock, sock.makefile("rb") as stream:
            assert stream.readline() == b"%d\n" % number
            sock.sendall(b"once more\n")
            assert stream.readline() == b"once more\n"
            sock.shutdown(socket.SHUT_WR)
            assert stream.read() == b""


def end(started):
    pids = [started.pid, *children(started.pid)]
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


@test
def clients_of_a_server_that_loads_connect_at_once(world):
    for how in ("accept", "fork", "exec"):
        started = loading(world, how)
        with contextlib.ExitStack() as stack:
            are_answered(connected(world, stack, 8))
        end(started)
        started.wait(5)


@test
def a_socket_for_each_family_gets_its_own_clients(world):
    world.use_ipv6()
    started = loading(world, "both", 0.4)
    with contextlib.ExitStack() as stack:
        socks = connected(world, stack, 2) + connected(world, stack, 2, world.STACK6)
        others = [
            *connected(world, stack, 1, port=PORT + 1),
            *connected(world, stack, 1, world.STACK6, PORT + 1),
        ]
        until(lambda: "serves IPv4" in started.output(), 10, "it serves IPv4")
        socks += connected(world, stack, 1, world.STACK6)
        are_answered(socks)
        are_answered(others[:1])
        assert is_reset(others[1], 4)
    end(started)


@test
def data_and_ends_of_clients_wait_for_the_server(world):
    started = loading(world, "accept")
    with contextlib.ExitStack() as stack:
        half, long, gone = connected(world, stack, 3)
        gone.close()
        half.sendall(b"a line\nand another")
        half.shutdown(socket.SHUT_WR)
        data = b"".join(b"%07d\n" % number for number in range(4000))
        long.sendall(data)
        assert half.makefile("rb").read() == b"a line\nand another"
        with long.makefile("rb") as stream:
            assert stream.read(len(data)) == data
    end(started)


@test
def accepted_connections_inherit_the_listeners_options(world):
    started = loading(world, "nodelay")
    with contextlib.ExitStack() as stack:
        for sock in connected(world, stack, 2):
            sock.sendall(b"?\n")
            assert sock.makefile("rb").readline() == b"11\n"
    end(started)


@test
def no_more_than_its_backlog_connect(world):
    started = loading(world, "accept")
    with contextlib.ExitStack() as stack:
        socks = connected(world, stack, 9)
        with contextlib.suppress(TimeoutError):
            world.connect(PORT, 0.3)
            assert False, "a tenth connected"
        are_answered(socks)
    end(started)


@test
def a_listener_that_is_closed_resets_waiting_clients(world):
    started = loading(world, "close")
    with contextlib.ExitStack() as stack:
        for sock in connected(world, stack, 3):
            assert is_reset(sock, 4)
    with contextlib.suppress(ConnectionRefusedError):
        world.connect(PORT, 2)
        assert False, "nobody listens"
    end(started)

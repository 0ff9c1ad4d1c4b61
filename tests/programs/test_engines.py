"""Programs whose threads each wait on their own sockets: an engine for each, as far as slots are
free."""

import concurrent.futures
import contextlib
import json
import os
import random
import socket
import subprocess
import threading
import time
from collections import Counter

from harness import test
from harness.process import until
from harness.world import PROGRAMS


def started(world, how, threads, *options, port=7000):
    server = world.stack(*world.program("engines.py"), how, port, threads, options=options)
    world.wait_port(port, process=server)
    if how == "own":
        until(lambda: "all listen" in server.output(), 10, "all listen")
    return server


def engines(world, server):
    """Returns the number of engines that the program has."""
    (report,) = json.loads(world.admin("status", "--json").finish())
    return sum(engine["pid"] == server.pid for engine in report["engines"])


def driving(world, pid):
    """Returns the threads that drive the engines of a process and their names, as `status` has
    them."""
    (report,) = json.loads(world.admin("status", "--json").finish())
    found = [engine for engine in report["engines"] if engine["pid"] == pid]
    return {engine["thread"]: engine["thread_name"] for engine in found}


def ask(sock, text):
    sock.sendall(text)
    got = b""
    while not got.endswith(b"\n"):
        piece = sock.recv(65536)
        assert piece, f"an end after {got!r}"
        got += piece
    return got


def thread_of(sock):
    return int(ask(sock, b"who\n"))


def check_one_thread_per_connection(world, connections, rounds=3):
    """Checks that one thread answers each connection; returns the connections per thread."""
    socks = [world.connect(7000) for _ in range(connections)]
    threads = [thread_of(sock) for sock in socks]
    text = b"x" * 30_000 + b"\n"
    for _ in range(rounds):
        assert [thread_of(sock) for sock in socks] == threads
        for sock in socks:
            assert ask(sock, text) == text
    for sock in socks:
        sock.close()
    return Counter(threads)


@test
def each_thread_with_its_own_listener_has_its_own_engine(world):
    server = started(world, "own", 4)
    if world.mode == "inprocess":
        until(lambda: engines(world, server) == 4, 10, "four engines")
    served = check_one_thread_per_connection(world, 64)
    if world.mode != "instance":
        assert len(served) == 4, served
    socks = [world.connect(7000) for _ in range(64)]
    check_driving(world, server, {int(ask(sock, b"tid\n")) for sock in socks})


def check_driving(world, server, threads):
    """Checks that `status` shows these threads; the one of an instance drives for all of them."""
    if world.mode == "kernel":
        return
    (report,) = json.loads(world.admin("status", "--json").finish())
    pid = server.pid
    if world.mode == "instance":
        (pid,) = (engine["pid"] for engine in report["engines"] if engine["instance"])
        threads = {pid}
    named = driving(world, pid)
    assert named.keys() == threads, (named, threads)
    text = world.admin("status").finish()
    for thread, name in named.items():
        with open(f"/proc/{pid}/task/{thread}/comm") as comm:
            assert comm.read() == f"{name}\n"
        assert f"  {thread} {name}  " in text, text


@test(modes=("inprocess",))
def status_names_the_thread_that_took_over_from_one_that_ended(world):
    server = started(world, "dies", 2)
    # Until then one thread gets all connections.
    until(lambda: engines(world, server) == 2, 10, "two engines")
    socks = [world.connect(7000) for _ in range(16)]

    def is_named():
        return driving(world, server.pid).keys() == {int(ask(sock, b"tid\n")) for sock in socks}

    until(is_named, 10, "the threads that answer")
    tasks = {int(task) for task in os.listdir(f"/proc/{server.pid}/task")}
    assert driving(world, server.pid).keys() <= tasks


@test
def threads_that_listen_before_they_wait_have_engines_too(world):
    """Listeners made before the first wait are on the process's first engine; clients that connect
    there are served by the threads that listen."""
    server = started(world, "late", 4)
    end = time.monotonic() + 0.7
    early = []
    while time.monotonic() < end:
        early.append(world.connect(7000))
        early[-1].sendall(b"who\n")
        time.sleep(0.02)
    for sock in early:
        assert 0 <= int(sock.recv(100)) < 4
    if world.mode == "inprocess":
        until(lambda: engines(world, server) == 4, 10, "four engines")
    served = check_one_thread_per_connection(world, 64)
    if world.mode != "instance":
        assert len(served) == 4, served
    for sock in early:
        thread_of(sock)
        sock.close()


@test
def threads_without_an_engine_of_their_own_share_one(world):
    options = () if world.mode == "kernel" else ("--thread-engines", "3")
    server = started(world, "own", 12, *options)
    if world.mode == "inprocess":
        until(lambda: engines(world, server) == 3, 10, "three engines")
    served = check_one_thread_per_connection(world, 64)
    assert len(served) > 3, served
    if world.mode == "inprocess":
        assert engines(world, server) == 3


@test
def threads_that_share_a_udp_port_have_engines(world):
    """Threads that bind after the process has an engine get one too; no datagram is lost."""
    server = world.stack(*world.program("udp_shares.py"), 7000, 3)
    until(lambda: "waits" in server.output(), 10, "the first waits")
    with world.at_peer():
        socks = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(60)]
    for number, sock in enumerate(socks):
        sock.settimeout(5)
        sock.sendto(b"%d" % number, (world.address, 7000))
        time.sleep(0.01)
    answers = [sock.recv(100).split() for sock in socks]
    assert [int(text) for _, text in answers] == list(range(60))
    until(lambda: server.output().count("waits") == 3, 10, "all wait")
    if world.mode == "inprocess":
        until(lambda: engines(world, server) == 3, 10, "three engines")
    seen = Counter()
    for number, sock in enumerate(socks):
        sock.sendto(b"%d" % number, (world.address, 7000))
        seen[sock.recv(100).split()[0]] += 1
        sock.close()
    assert len(seen) == 3 or world.mode == "instance", seen


@test(modes=("inprocess",))
def threads_that_share_an_engine_get_their_own_when_there_are_slots(world):
    other = started(world, "own", 2, "--slots", "4")
    until(lambda: engines(world, other) == 2, 10, "two engines")
    server = started(world, "own", 3, port=7001)
    socks, threads = [], []
    while len(set(threads)) < 3:
        assert len(socks) < 200, Counter(threads)
        socks.append(world.connect(7001))
        threads.append(thread_of(socks[-1]))
    assert engines(world, server) == 2
    other.kill()

    def is_served_by_three():
        assert [thread_of(sock) for sock in socks] == threads
        return engines(world, server) == 3

    until(is_served_by_three, 10, "three engines")
    assert [thread_of(sock) for sock in socks] == threads
    for sock in socks:
        assert ask(sock, b"x" * 30_000 + b"\n") == b"x" * 30_000 + b"\n"
        sock.close()


@test
def a_set_whose_thread_has_ended_is_served_by_the_next(world):
    started(world, "dies", 3)
    for _ in range(3):
        assert sum(check_one_thread_per_connection(world, 24).values()) == 24


@test
def a_program_forks_while_its_threads_wait(world):
    started(world, "forks", 4)
    socks = [world.connect(7000) for _ in range(16)]
    threads = [thread_of(sock) for sock in socks]
    for sock in socks[:6]:
        assert ask(sock, b"fork\n") == b"7\n"
        assert [thread_of(sock) for sock in socks] == threads
    assert sum(check_one_thread_per_connection(world, 16).values()) == 16


@test
def connections_that_one_thread_accepts_move_to_those_that_serve_them(world):
    server = started(world, "hands", 4)
    for _ in range(3):
        served = check_one_thread_per_connection(world, 40)
        assert len(served) == 4 and sum(served.values()) == 40, served
    if world.mode == "inprocess":
        # And the first, of the thread that accepts.
        assert engines(world, server) == 5


@test
def data_received_before_a_connection_moves_moves_with_it(world):
    started(world, "hands", 3)
    # The last thing that is sent, and the end, before the server has accepted it.
    socks = [world.connect(7000) for _ in range(30)]
    text = b"x" * 20_000 + b"\n"
    for sock in socks:
        sock.sendall(text)
        sock.shutdown(socket.SHUT_WR)
    for sock in socks:
        with sock, sock.makefile("rb") as file:
            assert file.read() == text


def chat(sock, seed, rounds, failed):
    """Sends texts of all lengths and compares the answers; sometimes sends the next text before the
    answer to the last."""
    try:
        dice = random.Random(seed)
        for _ in range(rounds):
            texts = [
                dice.randbytes(dice.choice((1, 10, 1000, 40_000)))
                for _ in range(dice.choice((1, 1, 1, 3)))
            ]
            sent = b"".join(text.replace(b"\n", b" ") + b"\n" for text in texts)
            sock.sendall(sent)
            got = b""
            while len(got) < len(sent):
                piece = sock.recv(65536)
                assert piece, f"an end after {len(got)} bytes"
                got += piece
            assert got == sent, "other bytes"
    except Exception as error:
        failed.append(error)


def a_thread_for_each_connection(world, how):
    server = started(world, how, 0)
    socks = [world.connect(7000) for _ in range(6)]
    threads = [thread_of(sock) for sock in socks]
    failed = []
    chats = [
        threading.Thread(target=chat, args=(sock, seed, 150, failed))
        for seed, sock in enumerate(socks)
    ]
    for it in chats:
        it.start()
    for it in chats:
        it.join()
    assert not failed, failed
    assert [thread_of(sock) for sock in socks] == threads
    if world.mode == "inprocess":
        # The first one is that of the thread that accepts.
        assert engines(world, server) > 4, engines(world, server)
    if world.mode != "kernel":
        rows = json.loads(world.admin("locality", "--json").finish())
        assert sum(row["moved_in"] for row in rows) >= 4, rows
    for sock in socks:
        sock.sendall(b"end\n")
    for sock in socks:
        assert sock.recv(100) == b"", "no end"
        sock.close()
    assert sum(check_one_thread_per_connection(world, 12, rounds=10).values()) == 12


@test
def a_thread_that_blocks_for_one_connection_gets_an_engine_and_the_connection(world):
    a_thread_for_each_connection(world, "each")


@test
def a_thread_that_polls_one_connection_gets_an_engine_and_the_connection(world):
    a_thread_for_each_connection(world, "polls")


@test
def threads_for_more_connections_than_there_are_engines_share_them(world):
    """Those that had one of their own too, with all bytes on their way."""
    server = started(world, "each", 0)
    few, many = 5, max(9, os.cpu_count()) + 8
    socks = [world.connect(7000) for _ in range(few)]
    for _ in range(20):
        threads = [thread_of(sock) for sock in socks]
    if world.mode == "inprocess":
        assert engines(world, server) == few + 1
    with concurrent.futures.ThreadPoolExecutor(many) as pool:
        failed = []
        early = [pool.submit(chat, sock, seed, 200, failed) for seed, sock in enumerate(socks)]
        later = [world.connect(7000) for _ in range(few, many)]
        all_of_them = early + [
            pool.submit(chat, sock, seed, 100, failed) for seed, sock in enumerate(later)
        ]
        concurrent.futures.wait(all_of_them)
    assert not failed, failed
    assert [thread_of(sock) for sock in socks] == threads
    if world.mode == "inprocess":
        rows = json.loads(world.admin("locality", "--json").finish())
        # More than once: away, and back.
        assert sum(row["moved_in"] for row in rows) > max(9, os.cpu_count()), rows
    for sock in socks + later:
        sock.close()
    # And then there is one for each again.
    assert sum(check_one_thread_per_connection(world, few, rounds=10).values()) == few


@test(serial=True)
def connections_of_threads_that_share_engines_have_equal_shares(world):
    program = world.folder / "thread_each"
    source = PROGRAMS / "thread_each.c"
    subprocess.run(["gcc", "-O2", "-Wall", "-pthread", "-o", program, source], check=True)
    server = world.stack(program, "serve", 7000)
    world.wait_port(7000, process=server)
    asker = world.peer(program, "ask", world.address, 7000, 64, 2)
    answers = sorted(int(count) for count in asker.finish(30).split())
    assert answers[0] > 0.4 * answers[-1], answers


@test(modes=("instance",))
def threads_with_channels_of_their_own_outlive_their_instance(world):
    started(world, "hands", 3)
    before = [world.connect(7000) for _ in range(6)]
    for sock in before:
        thread_of(sock)
    world.instance.kill()
    for sock in before:
        sock.close()
    world.instance = None
    world.ready_instance()

    def is_served():
        try:
            with world.connect(7000) as sock:
                return thread_of(sock) >= 0
        except (OSError, AssertionError):
            return False

    until(is_served, 10, "the next instance serves")
    assert sum(check_one_thread_per_connection(world, 12).values()) == 12


@test
def five_hundred_threads_die_while_they_have_engines(world):
    """By return, pthread_exit and pthread_cancel; the next thread serves their sets."""
    program = world.folder / "dying_threads"
    source = PROGRAMS / "dying_threads.c"
    subprocess.run(["gcc", "-Wall", "-pthread", "-o", program, source], check=True)
    server = world.stack(program, 7000, 4, 500)
    world.wait_port(7000, process=server)
    chance = random.Random(1)
    socks = [world.connect(7000) for _ in range(12)]
    with world.at_peer():
        askers = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(8)]
    for asker in askers:
        asker.settimeout(10)
        asker.connect((world.address, 7000))

    def round_is_last():
        for sock in socks:
            text = chance.randbytes(chance.choice((1, 100, 20_000))).replace(b"\n", b" ") + b"\n"
            assert ask(sock, text) == text
        for asker in askers:
            text = chance.randbytes(50)
            asker.send(text)
            assert asker.recv(100) == text
        socks.pop(chance.randrange(len(socks))).close()
        socks.append(world.connect(7000))
        return "the last threads" in server.output()

    until(round_is_last, 60, "all threads but the last have died")
    assert round_is_last(), "the last ones serve"
    assert server.is_running(), server.tail()
    for sock in [*socks, *askers]:
        sock.close()


@test
def kill_9_while_connections_move_between_threads_ends_them(world):
    """The next program has the port at once."""
    for milliseconds in (0, 3):
        server = started(world, "hands", 4)
        socks = [world.connect(7000) for _ in range(24)]
        for sock in socks:
            sock.sendall(b"who\n")
        time.sleep(milliseconds / 1000)
        server.kill()
        for sock in socks:
            sock.settimeout(5)
            with sock, contextlib.suppress(ConnectionResetError):
                while sock.recv(100):
                    pass


def ask_for_a_while(socks):
    """Each is answered so often that it moves to an engine of its thread."""
    for _ in range(20):
        for sock in socks:
            thread_of(sock)


def close_all(socks):
    for sock in socks:
        sock.close()


@test
def engines_of_threads_that_have_ended_are_given_back(world):
    server = started(world, "each", 0)
    for _ in range(2):
        socks = [world.connect(7000) for _ in range(8)]
        ask_for_a_while(socks)
        if world.mode == "inprocess":
            assert engines(world, server) == 9
        close_all(socks[1:])
        if world.mode == "inprocess":
            until(lambda: engines(world, server) == 2, 20, "two engines")
        assert ask(socks[0], b"x" * 30_000 + b"\n") == b"x" * 30_000 + b"\n"
        socks[0].close()
    if world.mode == "inprocess":
        until(lambda: engines(world, server) == 1, 20, "one engine")
    assert sum(check_one_thread_per_connection(world, 12).values()) == 12


@test
def threads_come_and_go_fifty_times(world):
    """Some of them as an engine without a thread is given back."""
    server = started(world, "each", 0)
    dice = random.Random(5)
    text = b"x" * 30_000 + b"\n"
    most = 0
    for number in range(50):
        socks = [world.connect(7000) for _ in range(dice.randrange(1, 6))]
        ask_for_a_while(socks)
        for sock in socks:
            assert ask(sock, text) == text
        if world.mode == "inprocess":
            most = max(most, engines(world, server))
        close_all(socks)
        if number % 4 == 0:
            time.sleep(dice.uniform(0.9, 1.2))
    if world.mode == "inprocess":
        assert 2 < most < 8, most
        until(lambda: engines(world, server) == 1, 20, "one engine")
    assert server.is_running(), server.tail()


@test(modes=("inprocess",))
def programs_whose_threads_have_ended_leave_their_slots_to_others(world):
    servers = []
    for port in (7000, 7001, 7002):
        servers.append(started(world, "each", 0, port=port))
        socks = [world.connect(port) for _ in range(8)]
        ask_for_a_while(socks)
        assert engines(world, servers[-1]) == 9
        close_all(socks)
        until(lambda: engines(world, servers[-1]) == 1, 20, "one engine")
    assert [engines(world, server) for server in servers] == [1, 1, 1]

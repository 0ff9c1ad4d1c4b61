"""Many of a kind, and ends at the worst moment: children beside connections, threads, children that
are killed, connections that go round, ends that close at one moment."""

import contextlib
import os
import resource
import signal
import time

from harness import test
from harness.process import until

LINE = b"line\n"
INHERITED = 2500


def server(world, port, *how):
    started = world.stack(*world.program("crowded.py"), port, *how)
    world.wait_port(port, process=started)
    return started


def connections(world, stack, port, count):
    """Each with a file to read lines from."""
    made = [stack.enter_context(world.connect(port)) for _ in range(count)]
    return [(sock, stack.enter_context(sock.makefile("rb"))) for sock in made]


@test
def connections_go_on_beside_hundreds_of_children(world):
    started = server(world, 7160, "forks")
    with contextlib.ExitStack() as stack:
        forker, *others = connections(world, stack, 7160, 31)
        for _ in range(10):
            for _ in range(20):
                forker[0].sendall(b"fork\n")
                assert forker[1].readline() == b"fork\n"
            for sock, _ in others:
                sock.sendall(LINE)
            for _, stream in others:
                assert stream.readline() == LINE
    assert started.is_running(), started.tail()


@test
def a_program_of_500_threads_serves_all_of_them(world):
    server(world, 7161, "threads", 500)
    with contextlib.ExitStack() as stack:
        for _ in range(3):
            for sock, stream in connections(world, stack, 7161, 50):
                sock.sendall(LINE)
                assert stream.readline() == LINE


@test
def a_child_that_is_killed_while_its_connection_moves_ends_that_alone(world):
    """After sixteen answers the connection goes to the child."""
    started = server(world, 7162, "children")
    with contextlib.ExitStack() as stack:
        (kept,) = connections(world, stack, 7162, 1)
        kept[1].readline()
        for round in range(12):
            with world.connect(7162) as sock, sock.makefile("rb") as stream:
                pid = int(stream.readline())
                for number in range(14 + round % 4):
                    sock.sendall(LINE)
                    assert stream.readline() == LINE
                with contextlib.suppress(ConnectionError):
                    sock.sendall(LINE)
                    time.sleep(0.0003 * round)
                    os.kill(pid, signal.SIGKILL)
                    # Its answer, if it had got so far, and the end: not silence.
                    while stream.readline():
                        pass
            kept[0].sendall(LINE)
            assert kept[1].readline() == LINE
    assert started.is_running(), started.tail()


@test
def a_connection_goes_round_several_processes(world):
    started = world.stack(*world.program("circle.py"), 7163, 3, 100)
    world.wait_port(7163, process=started)
    for _ in range(5):
        with world.connect(7163) as sock, sock.makefile("rb") as stream:
            for turn in range(100):
                sock.sendall(b"%d\n" % turn)
                assert stream.readline() == b"%d %d\n" % (turn % 3, turn)
            assert stream.readline() == b""


def both_close(world, *how):
    server = world.stack(*world.program("both_close.py"), "serve", 7164)
    until(lambda: "listens" in server.output() or not server.is_running(), 10, "the server listens")
    words = [*world.program("both_close.py"), "ask", world.address, 7164, *how]
    for start in (world.stack, world.peer):
        assert start(*words).finish(60) == "100 of 100\n", server.tail()
    assert server.output() == "listens\n", server.tail()
    return server


@test
def two_programs_that_close_at_one_moment_lose_nothing(world):
    both_close(world)


@test
def programs_that_reset_at_one_moment_get_errors_and_no_ends(world):
    server = both_close(world, "reset")
    descriptors = f"/proc/{server.pid}/fd"

    def sockets():
        numbers = os.listdir(descriptors)
        return sum("socket:" in os.readlink(f"{descriptors}/{number}") for number in numbers)

    # The listener's, and those to the device and the keeper.
    until(lambda: sockets() < 20, 10, "its connections are closed")


def check_end_after(world, how, lines=0):
    """Checks that a connection ends for which the server does `how`, after further lines."""
    with world.connect(7165) as sock, sock.makefile("rb") as stream:
        for line in (how, *[LINE] * lines):
            sock.sendall(line)
            assert stream.readline() == line
        with contextlib.suppress(ConnectionResetError):
            assert stream.read() == b""


@test
def connections_in_messages_that_nobody_can_receive_end(world):
    started = world.stack(*world.program("in_flight.py"), 7165)
    world.wait_port(7165, process=started)
    counts = []
    for _ in range(3):
        check_end_after(world, b"unread\n")
        check_end_after(world, b"killed\n", 1)
        check_end_after(world, b"circle\n")
        counts.append(len(os.listdir(f"/proc/{started.pid}/fd")))
    # The first ones stay open for the next.
    assert counts[-1] <= counts[0] + 1, f"descriptors are left: {counts}"


@test
def programs_inherit_thousands_of_connections(world):
    """Their text is longer than a variable of the environment may be."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(INHERITED * 2, hard), hard))
    try:
        started = world.stack(*world.program("inheriting.py"), 7166, INHERITED)
        until(lambda: "listens" in started.output(), 10, "it listens")
        with contextlib.ExitStack() as stack:
            socks = [stack.enter_context(world.connect(7166)) for _ in range(INHERITED)]
            for sock in socks:
                sock.sendall(LINE)
            for sock in socks:
                sock.settimeout(30)
                assert sock.recv(100) == LINE, started.tail()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

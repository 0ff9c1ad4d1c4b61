"""Programs that close all numbers which they do not use: the stack behind them goes on."""

import contextlib
import subprocess
import time

from harness import test
from harness.process import until
from harness.world import PROGRAMS

PORT = 7420
# As old daemons have it, below which the library's descriptors are among the program's numbers.
FEW = ("prlimit", "--nofile=1024:1024")
# The lowest number that is closed: above the standard streams, and above those that a program has.
LOWEST = (3, 200)
CLOSING = ("close", "range", "from", "proc")
MARKING = ("marked", "markedrange")
# Longer than the library's threads sleep at first.
PAUSE = 0.3
# The standard streams, and what the library needs for further sockets.
LEFT_MOST = 8
SIZE = 300_000


@test
def a_program_may_close_all_numbers_before_its_first_socket(world):
    check(world, "start", CLOSING)


@test
def a_program_may_close_all_numbers_but_its_listeners(world):
    check(world, "listen", CLOSING)


@test
def a_program_may_close_all_numbers_but_its_connections(world):
    check(world, "accepted", CLOSING)


@test
def a_child_may_close_all_numbers_but_its_connections(world):
    check(world, "child", CLOSING)


@test
def a_parent_may_close_all_numbers_but_its_listener(world):
    """Its children use the connections."""
    check(world, "parent", CLOSING)


@test
def a_thread_may_close_all_numbers_but_those_of_others(world):
    check(world, "threads", CLOSING)


@test(modes=("inprocess",))
def a_thread_may_close_all_numbers_beside_engines_of_others(world):
    check(world, "threads", CLOSING, options=("--thread-engines", "4"))


@test(modes=("inprocess",), device="tap")
def a_program_may_close_all_numbers_beside_a_tap(world):
    check(world, "accepted", CLOSING[:1])


@test
def a_child_may_close_all_numbers_before_its_exec(world):
    check(world, "exec", CLOSING + MARKING)


@test
def descendants_that_close_all_numbers_keep_none_of_their_ancestors(world):
    """Each has an engine, or the way to one, of its own."""
    program = built(world)
    for number, (way, before) in enumerate((way, few) for way in CLOSING for few in ((), FEW)):
        port = PORT + 10 * number
        started = world.stack(program, port, "generations", way, 3, before=before)
        until(
            lambda started=started: started.output().count("left") == 3,
            10,
            f"three have closed all\n{started.tail()}",
        )
        left = [int(line.split()[0]) for line in started.output().splitlines()]
        assert max(left) <= LEFT_MOST, f"{way}: {left}"
        started.kill()


@test
def a_number_that_was_closed_past_the_library_is_the_programs(world):
    started = world.stack(built(world), PORT, "past", "close", LOWEST[1])
    until(lambda: not started.is_running(), 10, f"it has ended\n{started.tail()}")
    said = started.output().split("\n")
    assert said.count("closed") > 1 and not any(said[said.count("closed") :]), said


def built(world):
    program = world.folder / "closes_all"
    source = PROGRAMS / "closes_all.c"
    subprocess.run(["gcc", "-O1", "-Wall", "-pthread", "-o", program, source], check=True)
    return program


def check(world, moment, ways, options=()):
    program = built(world)
    cases = [(way, lowest, before) for way in ways for lowest in LOWEST for before in ((), FEW)]
    for number, (way, lowest, before) in enumerate(cases):
        port = PORT + number
        started = world.stack(program, port, moment, way, lowest, before=before, options=options)
        try:
            world.wait_port(port, process=started)
            is_served(world, port)
            assert started.is_running(), "the server has ended"
        except (AssertionError, OSError) as error:
            case = f"{way} from {lowest}{', few' if before else ''}"
            raise AssertionError(f"{case}: {error}\n{started.tail()}") from error
        assert not started.errors().count("was open"), started.errors()
        started.kill()


def is_served(world, port):
    """Clients that are there at the same time, and while later ones come."""
    with contextlib.ExitStack() as ends:
        socks = []
        for _ in range(3):
            socks.append(ends.enter_context(world.connect(port, 5)))
            for sock in socks:
                exchange(sock, b"there?")
        time.sleep(PAUSE)
        for sock in socks:
            exchange(sock, bytes(range(250)) * (SIZE // 250))
            sock.shutdown(1)
            assert sock.recv(1) == b""


def exchange(sock, data):
    for at in range(0, len(data), 10_000):
        part = data[at : at + 10_000]
        sock.sendall(part)
        got = b""
        while len(got) < len(part):
            more = sock.recv(len(part) - len(got))
            assert more, f"the connection has ended after {at + len(got)} bytes"
            got += more
        assert got == part

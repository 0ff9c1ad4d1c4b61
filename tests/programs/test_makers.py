"""Makers of connections that are killed while their children use them."""

import hashlib
import json
import os
import random
import signal
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from harness import test
from harness.moves import Moves, exchange
from harness.process import until
from test_forking import wait_for_no_children


@test
def kill_9_of_the_maker_in_the_midst_of_transfers_loses_nothing_of_them(world):
    over = world.folder / "over"
    started = world.stack(*world.program("forking.py"), 7200, "long", over)
    world.wait_port(7200, process=started)
    wait_for_no_children(started)
    waiting = [waiting_in(world, way) for way in (b"e", b"p", b"b")]
    with ThreadPoolExecutor(3) as pool:
        ways = (downloaded, uploaded, echoed_until)
        transfers = [pool.submit(way, world, over) for way in ways]
        try:
            until(lambda: len(started.children()) == 6, 10, "six children serve")
            if world.mode != "kernel":
                until(lambda: has_moved(world, started), 20, "each child has its connection")
            os.kill(started.pid, signal.SIGKILL)
            started.wait(5)
            time.sleep(0.1)
            assert not any(transfer.done() for transfer in transfers), "all go on"
        finally:
            over.touch()
        for transfer in transfers:
            transfer.result()
    for sock in waiting:
        assert_answers(sock)
        sock.close()


def has_moved(world, started):
    said = [world.admin("why", pid).output() for pid in started.children()]
    return all("7200" in text and "was forked from" not in text for text in said)


BLOCK = hashlib.shake_256(b"block").digest(65536)


def waiting_in(world, way):
    """A connection whose child waits in one call, from its first one on."""
    sock = world.connect(7200, 20)
    sock.sendall(way)
    return sock


def assert_answers(sock):
    sock.sendall(b"there?")
    assert sock.recv(100).endswith(b"there?")
    sock.shutdown(socket.SHUT_WR)
    assert sock.recv(100) == b""


def downloaded(world, _):
    with world.connect(7200, 20) as sock, sock.makefile("rb") as stream:
        sock.sendall(b"d")
        count = 0
        while (block := stream.read(len(BLOCK))) == BLOCK:
            count += 1
        assert block == b"end", f"{len(block)} other bytes after {count} blocks"


def uploaded(world, over):
    with world.connect(7200, 20) as sock, sock.makefile("rb") as stream:
        sock.sendall(b"u")
        whole = hashlib.blake2b()
        while not over.exists():
            sock.sendall(BLOCK)
            whole.update(BLOCK)
        sock.shutdown(socket.SHUT_WR)
        assert stream.read() == whole.digest()


def echoed_until(world, over):
    """Bytes go both ways all the time, through a child that waits with epoll."""
    with world.connect(7200, 20) as sock, sock.makefile("rb") as stream:
        sock.sendall(b"e" + BLOCK)
        while not over.exists():
            sock.sendall(BLOCK)
            assert stream.read(len(BLOCK)) == BLOCK
        sock.shutdown(socket.SHUT_WR)
        assert stream.read() == BLOCK


@test
def makers_are_killed_while_their_connections_move_to_children(world):
    """A connection that its maker's child does not have yet may be cut. No client waits for ever,
    and no engine is left."""
    words = world.program("dying_makers.py")
    started = world.stack(*words, world.address, 7310, 4)
    until(lambda: "begins" in started.output(), 10, "the first maker")
    until(lambda: is_answered(world, 7310), 10, "it answers")
    moves = Moves(world, 7310, 3, seed=2, ways=("-",), cut=("-",))
    assert moves.run() >= 20 and moves.whole >= 10, (moves.done, moves.whole)
    until(lambda: "nobody is killed" in started.output(), 10, "the last maker")
    assert is_answered(world, 7310)
    if world.mode != "kernel":
        until(lambda: len(engines_of(world)) == 1, 10, f"no engine is left: {engines_of(world)}")
    world.strays.append(lambda: child_of(started.pid))


@test
def a_child_goes_on_whose_maker_is_killed_before_it_has_the_connection(world):
    orphaned(world, 7320, "recv", echoes)


@test
def a_child_that_waits_does_not_see_that_its_maker_is_killed(world):
    for port, way in enumerate(("poll", "select", "epoll", "edges", "oneshot", "timeout"), 7330):
        orphaned(world, port, way, echoes)


@test
def a_grandchild_that_waits_does_not_see_that_its_maker_is_killed(world):
    """The child between them lives, and does not have the connection any more."""
    orphaned(world, 7336, "grandchild", echoes)


@test
def a_program_that_a_child_has_become_goes_on_whose_maker_is_killed(world):
    orphaned(world, 7337, "become", echoes)
    orphaned(world, 7338, "used", echoes)


@test
def a_program_that_its_maker_has_started_goes_on_when_that_is_killed(world):
    orphaned(world, 7339, "spawn", echoes)


@test
def a_process_that_never_uses_a_connection_changes_nothing_when_its_maker_is_killed(world):
    """The child in between has it all the time."""
    orphaned_early_and_late(world, 7350, "beneath")
    orphaned_early_and_late(world, 7352, "bare")


@test
def another_child_that_never_uses_a_connection_changes_nothing_when_its_maker_is_killed(world):
    orphaned_early_and_late(world, 7355, "twice")


@test
def a_process_uses_a_connection_for_the_first_time_after_its_child_has_ended(world):
    orphaned(world, 7354, "after", has_last_word)


@test
def all_bytes_arrive_that_a_maker_passes_on_as_it_is_killed(world):
    orphaned(world, 7340, "digest", is_digested)


@test
def all_bytes_arrive_that_a_maker_passes_on_to_another_program_as_it_is_killed(world):
    orphaned(world, 7341, "sum", is_summed)


@test(modes=("kernel", "instance"))
def nothing_is_lost_if_a_child_has_no_descriptors_left_when_its_maker_is_killed(world):
    """In-process an engine needs descriptors: the connection may end."""
    orphaned(world, 7345, "full", is_digested)


def orphaned_early_and_late(world, port, way):
    """Before and after a connection has moved to the child that uses it."""
    orphaned(world, port, way, echoes)
    orphaned(world, port + 1, way, echoes_late, 0.7)


def orphaned(world, port, way, use, seconds=0.05):
    few = ("bash", "-c", 'ulimit -n 300; exec "$@"', "bash") if way == "full" else ()
    program = world.program("orphaned.py")
    started = world.stack(*few, *program, world.address, port, seconds, way)
    world.wait_port(port, process=started)
    with ThreadPoolExecutor(4) as pool:
        whole = sum(pool.map(lambda _: use(world, port), range(8)))
    # The last maker is killed, and the next one begins; it would be replaced if it ended first.
    time.sleep(0.1)
    maker = until(lambda: child_of(started.pid), 5, "the next maker")
    started.stop()
    world.strays.append(lambda: maker)
    assert whole == 8, f"{way}: {whole} of 8: {started.output()}"


def echoes(world, port, pause=0.02):
    """Whether all comes back that is sent now and then."""
    with world.connect(port) as sock:
        try:
            for size in (1, 100, 3000, 1):
                time.sleep(random.uniform(0, pause))
                exchange(sock, random.randbytes(size))
        except (EOFError, ConnectionError):
            return False
        sock.shutdown(socket.SHUT_WR)
        return sock.recv(1) == b""


def echoes_late(world, port):
    return echoes(world, port, 0.6)


def has_last_word(world, port):
    with world.connect(port) as sock, sock.makefile("rb") as stream:
        time.sleep(random.choice((0, 0.3)))
        sock.sendall(b"question")
        return stream.read() == b"questionbye"


def is_digested(world, port):
    return is_told(world, port, lambda whole: whole.digest())


def is_summed(world, port):
    return is_told(world, port, lambda whole: b"%s  -\n" % whole.hexdigest().encode())


def is_told(world, port, answer):
    """Whether all has arrived that is sent in pieces for longer than the maker lives."""
    with world.connect(port) as sock, sock.makefile("rb") as stream:
        whole = hashlib.blake2b()
        try:
            for _ in range(100):
                piece = random.randbytes(random.randrange(1, 20000))
                whole.update(piece)
                sock.sendall(piece)
                time.sleep(random.uniform(0, 0.001))
            sock.shutdown(socket.SHUT_WR)
            return stream.read() == answer(whole)
        except ConnectionError:
            return False


def is_answered(world, port):
    try:
        with world.connect(port) as sock:
            sock.sendall(b"x")
            return sock.recv(1) == b"x"
    except ConnectionError:
        return False


def engines_of(world):
    (report,) = json.loads(world.admin("status", "--json").finish())
    return [engine["pid"] for engine in report["engines"]]


def child_of(pid):
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return int(children[0]) if children else None

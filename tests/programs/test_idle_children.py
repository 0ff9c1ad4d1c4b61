"""Children that are forked while others get connections: they keep nothing of these."""

import contextlib
import os
import subprocess
from collections import Counter
from pathlib import Path

from harness import test
from harness.process import until
from harness.world import PROGRAMS

PORT = 7360
COUNT = 60
# Of the clients, for each answer and the end.
SECONDS = 5


@test
def idle_children_keep_no_connection_of_children_that_are_forked(world):
    check(world, PORT, "fork")


@test
def idle_children_keep_no_connection_of_programs_that_are_started(world):
    check(world, PORT + 1, "spawn")


@test
def idle_children_keep_no_connection_of_programs_that_a_shell_starts(world):
    check(world, PORT + 2, "shell")


@test
def idle_children_keep_no_connection_that_is_sent_in_a_message(world):
    check(world, PORT + 3, "message")


def check(world, port, how):
    program = world.folder / "idle_children"
    source = PROGRAMS / "idle_children.c"
    subprocess.run(["gcc", "-O1", "-Wall", "-pthread", "-o", program, source], check=True)
    # One more looks whether the port is open.
    started = world.stack(program, port, how, COUNT + 1)
    world.wait_port(port, process=started)
    with contextlib.ExitStack() as ends:
        socks = [ends.enter_context(world.connect(port, SECONDS)) for _ in range(COUNT)]
        idle = until(lambda: idle_children(started), 20, "all have got their connections")
        for sock in socks:
            sock.sendall(b"there?")
            assert sock.recv(100) == b"there?"
        check_idle(idle, started)
        for sock in socks:
            sock.shutdown(1)
        open_still = sum(not has_ended(sock) for sock in socks)
        assert not open_still, f"{open_still} of {COUNT} connections are open still"


def idle_children(started):
    """Their pids, when all is done."""
    lines = started.output().splitlines()
    found = [int(line.split()[1]) for line in lines if line.startswith("idle")]
    return found if f"given away beside {len(found)}" in lines else None


def check_idle(idle, started):
    """None has a socket of another process's that not all of them have."""
    found = {pid: sockets_of(pid) for pid in {started.pid, *started.children(), *idle}}
    owners = Counter(name for sockets in found.values() for name in sockets)
    idles = Counter(name for pid in idle for name in found[pid])
    kept = [name for name, count in idles.items() if owners[name] > 1 and count < len(idle)]
    assert not kept, f"{len(kept)} sockets are in some of {len(idle)} idle children: {kept[:5]}"


def sockets_of(pid):
    found = set()
    with contextlib.suppress(FileNotFoundError):
        for file in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):
                found.add(os.readlink(file))
    return {name for name in found if name.startswith("socket:")}


def has_ended(sock):
    try:
        return sock.recv(1) == b""
    except TimeoutError:
        return False

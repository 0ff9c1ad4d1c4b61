"""Programs under limits: what bounds one of them must not bound the keeper that serves all."""

import contextlib
import json
import os
import resource
import signal
import socket
import struct
import subprocess
import time

from harness import Skip, test
from harness.process import cpu_seconds, until
from harness.world import PROGRAMS

# Soft limits: a process that may not raise hard limits keeps them.
TIGHT = ["prlimit", "--nofile=64:", "--fsize=4096:", "--cpu=600:", "--as=40000000000:"]


def serves(world, port):
    with world.connect(port) as sock:
        sock.sendall(b"hello\n")
        assert b"hello" in sock.recv(100)


@test
def the_first_programs_limits_are_its_own(world):
    """It starts the keeper; the second one comes to a keeper that has room."""
    before = ["taskset", "-c", "0", "nice", "-n", "5", *TIGHT]
    first = world.stack(*world.program("threaded.py"), "server", 7000, before=before)
    world.wait_port(7000, process=first)
    servers = [
        world.stack(*world.program("threaded.py"), "server", 7001 + number) for number in range(4)
    ]
    for number, server in enumerate(servers):
        world.wait_port(7001 + number, process=server)
    for port in range(7000, 7005):
        serves(world, port)
    assert "slipstack" not in "".join(server.errors() for server in servers).replace(
        "slipstack: what the program listens on is reached", ""
    )


@test
def select_finds_a_connection_behind_thousands_of_descriptors(world):
    """On the stack the numbers of the library's own are below it."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 8192:
        raise Skip("the limit of open files is below 8192")
    program = world.folder / "selects_high"
    source = PROGRAMS / "selects_high.c"
    subprocess.run(["gcc", "-Wall", "-o", program, source], check=True)
    before = ["prlimit", f"--nofile={hard}"]
    server = world.stack(program, 7000, 4200, before=before)
    until(lambda: len(os.listdir(f"/proc/{server.pid}/fd")) > 4200, 20, "the files are open")
    serves(world, 7000)


@test(modes=("inprocess", "instance"))
def an_open_file_limit_that_is_too_low_is_named(world):
    first = world.stack(*world.program("threaded.py"), "server", 7000)
    world.wait_port(7000, process=first)
    low = 24 if world.mode == "inprocess" else 8
    second = world.stack(
        *world.program("threaded.py"), "server", 7001, before=["prlimit", f"--nofile={low}"]
    )
    until(
        lambda: "open files" in second.errors() or not second.is_running(), 10, "the limit is named"
    )
    assert (
        f"the limit of open files is too low: it is {low}; raise it (ulimit -n" in second.errors()
    ), second.tail()
    assert "too long" not in second.errors(), second.tail()


@test(modes=("inprocess",))
def an_open_file_limit_too_low_for_a_keeper_or_instance_is_named(world):
    """Raising a hard limit needs the capability: the keeper has it here."""
    bound = ["setpriv", "--bounding-set", "-sys_resource", "prlimit", "--nofile=24"]
    for words in (
        ["run", *world.device_options(), "--", "true"],
        ["instance", "--name", "a", *world.device_options()],
    ):
        words = [str(world.slipstack), words[0], "--run-dir", str(world.run_dir), *words[1:]]
        started = world.process([*world.stack_ns.prefix(), *bound, *words])
        assert started.wait(10) != 0
        (said,) = started.errors().strip().splitlines()
        assert "the limit of open files is too low: it is 24; raise it" in said, said


@test
def a_server_may_have_a_limited_address_space(world):
    server = world.stack(
        *world.program("threaded.py"), "server", 7000, before=["prlimit", "--as=1000000000"]
    )
    world.wait_port(7000, process=server)
    serves(world, 7000)


@test(modes=("inprocess", "instance"))
def an_address_space_that_is_too_small_is_named(world):
    first = world.stack(*world.program("threaded.py"), "server", 7000)
    world.wait_port(7000, process=first)
    second = world.stack(
        *world.program("threaded.py"), "server", 7001, before=["prlimit", "--as=100000000"]
    )
    until(
        lambda: "too small for a stack" in second.errors() or not second.is_running(),
        10,
        "the sentence is there",
    )
    assert "it is limited to 95 MB; raise it (ulimit -v " in second.errors(), second.tail()
    report = json.loads(world.admin("why", second.pid, "--json").output())
    (row,) = report["program"]["sockets"]
    assert row["place"] == "kernel" and "raise ulimit -v" in row["why"], report


def knock(world):
    """A connection to the keeper's socket; fails at once if no place is free."""
    (door,) = world.run_dir.glob("*/control")
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    sock.setblocking(False)
    sock.connect(str(door))
    return sock


def is_told_of_silence(world, how):
    began = time.monotonic()
    second = world.stack("true")
    assert second.wait(15) != 0
    took = time.monotonic() - began
    (said,) = second.errors().strip().splitlines()
    assert f"({how}) does not answer; if it is stopped, let it go on with kill -CONT" in said, said
    assert took < 12, f"{took:.1f} s"


@test(modes=("inprocess",))
def a_stopped_keeper_is_named_and_not_waited_for(world):
    first = world.stack(*world.program("threaded.py"), "server", 7000)
    world.wait_port(7000, process=first)
    with knock(world) as sock:
        pid = struct.unpack("3i", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]
    os.kill(pid, signal.SIGSTOP)
    try:
        is_told_of_silence(world, f"process {pid}")
        with contextlib.ExitStack() as held:
            with contextlib.suppress(BlockingIOError):
                for _ in range(1000):
                    held.enter_context(knock(world))
            is_told_of_silence(world, "see ps -C slipstack")
    finally:
        os.kill(pid, signal.SIGCONT)
    assert world.stack("true").wait(10) == 0


@test(modes=("instance",))
def an_instance_without_descriptors_sleeps_while_programs_connect(world):
    first = world.stack(*world.program("threaded.py"), "server", 7000)
    world.wait_port(7000, process=first)
    serves(world, 7000)
    pid = world.instance.pid
    used = {int(number) for number in os.listdir(f"/proc/{pid}/fd")}
    lowest_free = next(number for number in range(len(used) + 1) if number not in used)
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (lowest_free, before[1]))
    second = world.stack(*world.program("threaded.py"), "server", 7001)
    time.sleep(0.5)
    began = cpu_seconds(pid)
    time.sleep(1)
    took = cpu_seconds(pid) - began
    assert took < 0.2, f"{took} s of processor time in a second"
    resource.prlimit(pid, resource.RLIMIT_NOFILE, before)
    world.wait_port(7001, process=second)
    serves(world, 7000)

"""The log of keeper and instances at each `--log` level."""

import contextlib
import json
import os
import signal
import sys

from harness import test
from harness.process import until

from test_serve import serve


def keepers_log(world):
    return next(world.run_dir.rglob("log")).read_text()


def serve_once(world, *options):
    """A program starts, answers one connection, and ends; returns its process id."""
    started = world.stack(*world.program("aborted.py"), 8000, options=options)
    world.wait_port(8000, process=None if "off" in options else started)
    with world.connect(8000) as held:
        held.sendall(b"x")
        assert held.recv(1) == b"x"
    started.kill()
    started.wait(10)
    return started.pid


@test(modes=("inprocess",))
def the_keeper_logs_programs_that_come_and_leave_if_requested(world):
    held = world.stack(*world.program("aborted.py"), 8001, options=("--log", "info"))
    world.wait_port(8001, process=held)
    pid = serve_once(world)
    until(
        lambda: f"a client has left client=2 pid={pid}" in keepers_log(world),
        10,
        "the end is logged",
    )
    lines = keepers_log(world).splitlines()
    came = [line for line in lines if f"a client is here client=2 pid={pid}" in line]
    assert len(came) == 1 and came[0].split()[1] == "INFO", lines
    assert any("a slot is leased client=2 slot=" in line for line in lines), lines


CLAIM = """
import socket, sys
link = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
link.bind(("eth1", 0))
ip, mac = socket.inet_aton(sys.argv[1]), bytes.fromhex("020000000077")
link.send(b"\\xff" * 6 + mac + bytes.fromhex("08060001080006040001") + mac + ip + bytes(6) + ip)
"""


def claim(world):
    """Another station claims the stack's address."""
    world.peer(sys.executable, "-c", CLAIM, world.STACK).finish(10)


@test(modes=("inprocess",))
def the_default_level_logs_warnings_alone(world):
    held = world.stack(*world.program("aborted.py"), 8001)
    world.wait_port(8001, process=held)
    claim(world)
    wanted = (
        f"WARN another station claims an address of ours ip={world.STACK} mac=02:00:00:00:00:77"
    )
    until(lambda: wanted in keepers_log(world), 10, "the claim is logged")
    serve_once(world)
    assert " INFO " not in keepers_log(world), keepers_log(world)


@test(modes=("inprocess",))
def the_level_off_logs_nothing(world):
    world.stack(*world.program("aborted.py"), 8001, options=("--log", "off"))
    world.wait_port(8001)
    claim(world)
    until(
        lambda: "drop_arp_conflict" in world.admin("status", "--json").output(),
        10,
        "the claim is counted",
    )
    serve_once(world)
    assert keepers_log(world) == "", keepers_log(world)


@test()
def at_debug_each_request_of_a_program_is_logged(world):
    level = "--log", "debug"
    if world.mode == "instance":
        world.instance = world.start_instance("t", *level)
    held = world.stack(*world.program("aborted.py"), 8001, options=level)
    world.wait_port(8001, process=held)
    # The keeper listens until the program waits.
    asks = 'a request client=1 request="ListenOn'
    until(lambda: asks in keepers_log(world), 5, "the program asks to listen")
    if world.mode == "instance":
        assert "a request session=" in world.instance.errors(), world.instance.errors()


@test(modes=("instance",))
def an_instance_logs_its_programs(world):
    world.instance = world.start_instance("t", "--log", "info")
    pid = serve_once(world)
    until(
        lambda: f"a program has left pid={pid}" in world.instance.errors(), 10, "the end is logged"
    )
    assert f"a program has a channel pid={pid}" in world.instance.errors(), world.instance.errors()


LEVELS = ("off", "error", "warn", "info", "debug")


def each_level_says(world, signs, run):
    """`run` does the same at each level and returns the log; `signs` has a part of the line that
    belongs to each level, None for a level that has none here."""
    for number, level in enumerate(LEVELS):
        text = run(level)
        seen = [it for it in LEVELS[1:] if signs[it] and signs[it] in text]
        wanted = [it for it in LEVELS[1 : number + 1] if signs[it]]
        assert seen == wanted, f"--log {level} says {seen}\n{text}"
        if level == "off":
            assert text == "", text


@test(modes=("inprocess",))
def run_logs_at_each_level_as_the_help_describes(world):
    signs = {
        "error": "raise it (ulimit -v",
        "warn": "is reached at",
        "info": "slot 1 of eth1",
        "debug": "tcp 0.0.0.0:8000",
    }

    def run(level):
        options = ("--log", level)
        held = world.stack(*world.program("aborted.py"), 8000, options=options)
        world.wait_port(8000)
        # A program whose address space has no room for a stack.
        tight = ("prlimit", "--as=100000000")
        failed = world.stack(*world.program("aborted.py"), 9000, options=options, before=tight)
        # It has written the line for an accepted connection.
        until(lambda: answers_beside(world, 9000), 10, "the kernel serves it")
        for ended in (failed, held):
            ended.kill()
        return held.errors() + failed.errors()

    each_level_says(world, signs, run)


def answers_beside(world, port):
    try:
        with world.connect_beside(port) as client:
            client.sendall(b"x")
            return client.recv(1) == b"x"
    except OSError:
        return False


@test(modes=("inprocess",))
def a_log_file_has_the_lines_of_standard_error(world):
    file = world.folder / "log"
    options = ("--log", "debug", "--log-file", file)
    held = world.stack(*world.program("aborted.py"), 8000, options=options)
    world.wait_port(8000)
    signs = "is reached at", "slot 1 of eth1", "tcp 0.0.0.0:8000"
    until(lambda: all(it in file.read_text() for it in signs), 10, "all is in the file")
    held.kill()
    lines = file.read_text()
    assert held.errors() == "", held.errors()
    server = serve(world, "echo", "--port", 8001, *options)
    server.stop()
    assert "the keeper is asked" in file.read_text().removeprefix(lines), file.read_text()
    assert server.errors() == "", server.errors()


@test(modes=("inprocess",))
def servers_in_an_engine_log_by_level(world):
    signs = {
        "error": None,
        "warn": "connections were refused because a limit was reached",
        "info": "an engine has a slot",
        "debug": "the keeper is asked",
    }

    def run(level):
        server = serve(world, "echo", "--port", 8000, "--connections", 1, "--log", level)
        with world.connect(8000) as held:
            held.sendall(b"x")
            assert held.recv(1) == b"x"
            with contextlib.suppress(ConnectionError):
                assert world.connect(8000).recv(1) == b""
        server.stop()
        return server.errors()

    each_level_says(world, signs, run)


def keeper_pid(world):
    reports = json.loads(world.admin("status", "--json").output() or "[]")
    return reports[0]["keeper_pid"] if reports else None


@test(modes=("instance",))
def an_instance_logs_by_level(world):
    signs = {
        "error": None,
        "warn": "the keeper was gone",
        "info": "a program has a channel",
        "debug": "a request session=",
    }

    def run(level):
        world.instance = world.start_instance("t", "--log", level)
        keeper = keeper_pid(world)
        os.kill(keeper, signal.SIGKILL)
        until(lambda: keeper_pid(world) not in (None, keeper), 10, "there is a successor")
        serve_once(world, "--log", "off")
        world.instance.stop()
        return world.instance.errors()

    each_level_says(world, signs, run)

"""Keeper and standby are killed at the same time: running programs continue, and no new one
starts."""

import contextlib
import json
import os
import signal
import socket
import time

from harness import test
from harness.process import until
from harness.transfer import Transfer

DEVICE = ["--if", "eth1", "--ip", "10.77.0.2/24", "--gw", "10.77.0.1"]


def kill_both(world):
    (report,) = json.loads(world.admin("status", "--json").output())
    pids = report["keeper_pid"], report["standby_pid"]
    # A stopped keeper forks no other standby.
    os.kill(pids[0], signal.SIGSTOP)
    for pid in reversed(pids):
        os.kill(pid, signal.SIGKILL)
    until(lambda: not any(is_running(pid) for pid in pids), 5, "keeper and standby are gone")


def is_running(pid):
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def second(world, *words):
    """Another `slipstack run` on the device."""
    device = DEVICE if world.device == "veth" else []
    run = [
        str(world.slipstack),
        "run",
        "--run-dir",
        str(world.run_dir),
        *device,
        "--",
        *map(str, words or ["true"]),
    ]
    started = world.process([*world.stack_ns.prefix(), *run])
    return started.wait(15), started.errors().strip()


def list_addresses(world):
    """Those of a device that is young lose their mark after a second."""
    return world.stack_ns.ip("-o", "addr").replace(" tentative", "")


def assert_refused(world, *pids):
    addresses = list_addresses(world)
    files = sorted(str(file) for file in world.run_dir.rglob("*"))
    code, text = second(world)
    assert code == 1 and len(text.splitlines()) == 1, f"{code}: {text!r}"
    for part in ["eth1" if world.device == "veth" else "slip0", "no keeper", *map(str, pids)]:
        assert part in text, f"{part!r} is not in {text!r}"
    assert list_addresses(world) == addresses
    assert sorted(str(file) for file in world.run_dir.rglob("*")) == files


def assert_accepted(world):
    code, text = second(world)
    assert code == 0 and "is reached at" in text, f"{code}: {text!r}"


def lives_alone(world):
    server = world.stack(*world.program("threaded.py"), "server", 7000)
    world.wait_port(7000, process=server)
    with world.connect(7000) as sock:
        transfer = Transfer(sock)
        transfer.goes_on("at first")
        kill_both(world)
        transfer.goes_on("without a keeper")
        engine = world.instance.pid if world.mode == "instance" else server.pid
        for words in (["status"], ["why", str(engine)], ["stop", "--all"]):
            # An instance answers these itself, and would end when it is asked to.
            if world.mode == "inprocess" or words == ["status"]:
                asked = world.admin(*words)
                said = asked.output() + asked.errors()
                assert (
                    "no keeper" in said and str(engine) in said and "nothing runs" not in said
                ), said
        for _ in range(2):
            assert_refused(world, engine)
            transfer.goes_on("after another program was refused")
        transfer.stop()
        assert transfer.error is None, transfer.error
    server.kill()
    if world.instance is not None:
        world.instance.kill()
        world.instance = None
    assert_accepted(world)


@test(modes=("inprocess", "instance"), serial=True)
def no_other_keeper_comes_between_programs_that_lost_theirs(world):
    lives_alone(world)


@test(modes=("inprocess", "instance"), serial=True, device="tap")
def no_other_keeper_comes_between_programs_on_a_tap(world):
    lives_alone(world)


@test(modes=("inprocess",), serial=True)
def children_do_not_hold_what_their_parent_held(world):
    """A forked child without an engine and one that became another program outlive the one with the
    engine."""
    code = (
        "import os, socket, subprocess, time\n"
        "listener = socket.create_server(('0.0.0.0', 7000))\n"
        "listener.setblocking(False)\n"
        "try: listener.accept()\n"
        "except BlockingIOError: pass\n"
        "held = subprocess.Popen(['/usr/bin/env', '-i', '/bin/sleep', '30'], close_fds=False)\n"
        "child = os.fork() or time.sleep(30)\n"
        "if child: print(held.pid, child, flush=True); time.sleep(60)\n"
    )
    server = world.stack("/usr/bin/python3", "-c", code)
    children = [int(word) for word in until(server.output, 10, "the children run").split()]
    kill_both(world)
    assert_refused(world, server.pid)
    server.kill()
    try:
        assert all(is_running(pid) for pid in children)
        assert_accepted(world)
    finally:
        for pid in children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


@test(modes=("inprocess",), serial=True)
def no_keeper_starts_until_the_last_worker_with_an_engine_has_ended(world):
    first = world.stack(*world.program("threaded.py"), "server", 7000)
    other = world.stack(*world.program("threaded.py"), "server", 7001)
    world.wait_port(7000, process=first)
    world.wait_port(7001, process=other)
    with world.connect(7000) as one, world.connect(7001) as two:
        transfers = [Transfer(one), Transfer(two)]
        kill_both(world)
        for transfer in transfers:
            transfer.goes_on("without a keeper")
        assert_refused(world, first.pid, other.pid)
        transfers[0].stop()
        first.kill()
        assert_refused(world, other.pid)
        transfers[1].goes_on("when the other program has ended")
        transfers[1].stop()
    other.kill()
    assert_accepted(world)


def number_again(world):
    """Four programs, of which the second ends when no keeper is left to keep its queue."""
    servers = [
        world.stack(*world.program("threaded.py"), "server", 7000 + number) for number in range(3)
    ]
    datagrams = world.stack(*world.program("udp_echo.py"), 7010)
    for number, server in enumerate(servers):
        world.wait_port(7000 + number, process=server)
    with world.at_peer():
        asker = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    asker.connect((world.address, 7010))
    asker.settimeout(0.2)
    until(lambda: is_answered(asker), 10, "datagrams are answered")
    socks = [world.connect(7000 + number) for number in range(3)]
    transfers = [Transfer(sock) for sock in socks]
    kill_both(world)
    for turn, what in enumerate(["without a keeper", "without the second program"]):
        for number, transfer in enumerate(transfers):
            if (turn, number) != (1, 1):
                transfer.goes_on(f"{what}, port {7000 + number}")
        until(lambda: is_answered(asker), 5, f"datagrams are answered {what}")
        for number in (0, 2):
            with world.connect(7000 + number) as fresh:
                fresh.sendall(b"new")
                assert fresh.recv(10) == b"new"
        if turn == 0:
            transfers[1].stop()
            socks[1].close()
            servers[1].kill()
    for transfer, sock in zip(transfers, socks, strict=True):
        transfer.stop()
        sock.close()
    asker.close()
    for server in [*servers, datagrams]:
        server.kill()
    assert_accepted(world)


def is_answered(asker):
    try:
        asker.send(b"question")
        return asker.recv(100) == b"answer to question"
    except OSError:
        return False


@test(modes=("inprocess",), serial=True)
def frames_find_their_program_when_queues_are_numbered_again(world):
    number_again(world)


@test(modes=("inprocess",), serial=True, device="tap")
def frames_find_their_program_when_queues_of_a_tap_are_numbered_again(world):
    number_again(world)


@test(modes=("inprocess",), serial=True)
def a_program_that_closes_every_descriptor_is_counted_all_the_same(world):
    code = (
        "import os, socket, time\n"
        "listener = socket.create_server(('0.0.0.0', 7000))\n"
        "listener.setblocking(False)\n"
        "try: listener.accept()\n"
        "except BlockingIOError: pass\n"
        "keep = listener.fileno()\n"
        "for fd in map(int, os.listdir('/proc/self/fd')):\n"
        "    if fd > 2 and fd != keep:\n"
        "        try: os.close(fd)\n"
        "        except OSError: pass\n"
        "os.closerange(keep + 1, 70_000)\n"
        "print('closed', flush=True); time.sleep(60)\n"
    )
    server = world.stack("/usr/bin/python3", "-c", code)
    until(server.output, 10, "the program has closed what it could")
    kill_both(world)
    assert_refused(world, server.pid)
    server.kill()
    assert_accepted(world)

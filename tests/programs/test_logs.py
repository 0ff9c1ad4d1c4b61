"""What `--log` has the keeper and instances write."""

import sys

from harness import test
from harness.process import until


def keepers_log(world):
    return next(world.run_dir.rglob("log")).read_text()


def serve_once(world, *options):
    """A program comes, answers one connection, and ends; gives its process number."""
    started = world.stack(*world.program("aborted.py"), 8000, options=options)
    world.wait_port(8000, process=started)
    with world.connect(8000) as held:
        held.sendall(b"x")
        assert held.recv(1) == b"x"
    started.kill()
    started.wait(10)
    return started.pid


@test(modes=("inprocess",))
def the_keeper_logs_who_comes_and_leaves_where_that_is_asked_for(world):
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
    """Another station says that it has the stack's address."""
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
def off_is_off(world):
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
    asks = "a request client=1 request=\"ListenOn"
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

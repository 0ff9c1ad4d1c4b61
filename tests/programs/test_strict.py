"""`--strict`: a fallback to the kernel becomes an error that names the reason."""

import contextlib
import json
import socket

from harness import test
from harness.process import until

SLIPSTACK = ("inprocess", "instance")


def without_gateway(world):
    """It reaches nothing beyond the stack's own network."""
    world.device_options = lambda: ["--if", "eth1", "--ip", f"{world.STACK}/24", "--slots", "2"]


def hold_slots(world, count):
    for port in range(7000, 7000 + count):
        holder = world.stack(*world.program("threaded.py"), "server", port)
        world.wait_port(port, process=holder)


def told(process):
    until(
        lambda: "ready" in process.output() or not process.is_running(), 15, "everything is tried"
    )
    assert process.is_running(), process.tail()
    return dict(line.split() for line in process.output().splitlines() if " " in line)


def sentences(process):
    return [line for line in process.errors().splitlines() if "is reached at" not in line]


def peer_listens(world):
    with contextlib.suppress(OSError), world.peer_ns.inside(), socket.create_connection(
        (world.PEER, 7100), timeout=1
    ):
        return True


def places(world, process):
    answer = world.admin("why", process.pid, "--json")
    assert answer.child.returncode == 0, answer.tail()
    return json.loads(answer.output())["program"]["sockets"]


@test(modes=("inprocess",))
def without_a_free_slot_every_call_fails_that_needs_one(world):
    without_gateway(world)
    hold_slots(world, 2)
    third = world.stack(*world.program("strict.py"), world.peer_address, 7100, options=["--strict"])
    tried = told(third)
    assert tried == {
        "listen": "ENETDOWN",
        "listen-own": "ENETDOWN",
        "listen-loopback": "works",
        "udp-bind": "ENETDOWN",
        "udp-send": "ENETDOWN",
        "udp-send-beyond": "ENETUNREACH",
        "udp-connect": "ENETDOWN",
        "connect": "ENETUNREACH",
        "connect-beyond": "ENETUNREACH",
        "bind-beyond": "EADDRNOTAVAIL",
        "raw": "EPROTONOSUPPORT",
    }, tried
    said = sentences(third)
    assert all(line.startswith("slipstack: --strict: ") for line in said), said
    assert len(said) == 10 == len(set(said)), said
    assert sum("slot" in line for line in said) >= 5, said
    found = places(world, third)
    assert all(row["place"] != "stack" and row["place"] != "both" for row in found), found
    refused = [row for row in found if "--strict" in row["why"]]
    assert {row["kind"] for row in refused} == {"tcp", "udp"} and len(refused) == 9, found
    kernel = [row["local"] for row in found if row["place"] == "kernel"]
    assert kernel == ["127.0.0.1:7102"], found


@test(modes=SLIPSTACK)
def strict_programs_with_a_stack_work(world):
    without_gateway(world)
    world.peer(*world.program("threaded.py"), "server", 7100)
    until(lambda: peer_listens(world), 10, "the peer listens")
    process = world.stack(
        *world.program("strict.py"), world.peer_address, 7100, options=["--strict"]
    )
    tried = told(process)
    refused = {"udp-send-beyond", "connect-beyond", "bind-beyond", "raw"}
    assert {name for name, outcome in tried.items() if outcome != "works"} == refused, tried
    assert len(sentences(process)) == 4, process.tail()
    found = places(world, process)
    assert sum("--strict" in row["why"] for row in found) == 3, found


@test(modes=SLIPSTACK)
def a_socket_of_the_kernels_that_is_handed_over_is_named_or_refused(world):
    """As systemd and inetd do it."""
    handing = (
        "import os, socket, sys; s = socket.create_server(('0.0.0.0', 7200)); os.dup2(s.fileno(),"
        " 9); os.execvp(sys.argv[1], sys.argv[1:])"
    )
    # The program itself is the socket's: `before` runs ahead of slipstack.
    started = world.stack("sleep", 30, before=["python3", "-c", handing])
    until(lambda: "is reached at" in started.errors(), 10, "the program is started")
    (said,) = sentences(started)
    assert (
        "descriptor 9" in said and "0.0.0.0:7200" in said and "stays with the kernel" in said
    ), said
    started.stop()
    refused = world.stack("sleep", 30, before=["python3", "-c", handing], options=["--strict"])
    assert refused.wait(10) != 0
    (said,) = sentences(refused)
    assert "descriptor 9" in said and "0.0.0.0:7200" in said and "--strict" in said, said


@test(modes=("inprocess",))
def a_child_without_an_engine_fails_in_accept_and_needs_none_for_lent_datagrams(world):
    without_gateway(world)
    hold_slots(world, 1)
    process = world.stack(*world.program("strict.py"), "fork", 7100, options=["--strict"])
    tried = told(process)
    assert tried == {"listen": "works", "accept": "ENETDOWN", "recv": "EAGAIN"}, tried
    (said,) = sentences(process)
    assert "slot" in said and "0.0.0.0:7100" in said, said

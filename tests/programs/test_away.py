"""Connections while their program makes no calls: it computes, or sleeps."""

import os
import socket
import time
from pathlib import Path

from harness import test
from harness.capture import Capture
from harness.process import until

# The soak stays away for a minute.
SECONDS = float(os.environ.get("SLIPSTACK_AWAY_SECONDS", "10"))
EVERY_S = 0.02
# All that is sent fits into the receive buffer: the program does not read.
SIZE = 30
LIMIT_S = 0.008
# Of the acknowledgements, this share may be late without the scheduler being to blame.
LATE_SHARE_MAX = 0.01
CORE = 0


def acknowledgements_leave(world, how):
    # The sentinel is scheduled like the ticker: on the same core, in the program's session (and so
    # in its share of the processor), with a short time slice.
    watch = [*world.program("sentinel.py"), SECONDS + 1, world.folder / "delays", 100_000]
    os.sched_setaffinity(0, {CORE})
    server = world.stack(*world.program("away.py"), 7600, SECONDS, how, *watch)
    os.sched_setaffinity(0, range(os.cpu_count()))
    world.wait_port(7600, process=server)
    with Capture(world, "tcp", "port", "7600") as capture:
        sent = talk_to_the_absent(world)
    pairs = acknowledgement_times(capture.segments, world.address)
    assert len(pairs) >= 0.9 * sent, f"{len(pairs)} of {sent} acknowledgements seen"
    until(lambda: (world.folder / "delays").exists(), 5, "the sentinel's figures")
    delays = [
        tuple(map(float, line.split()))
        for line in (world.folder / "delays").read_text().splitlines()
    ]
    judge(pairs, delays)


def talk_to_the_absent(world):
    """Sends small segments while the program is away, one at a time; returns their number."""
    sent = 0
    with world.connect(7600, SECONDS + 20) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.sendall(b"go")
        assert sock.recv(5, socket.MSG_WAITALL) == b"ready"
        end = time.monotonic() + SECONDS - 0.3
        while time.monotonic() < end:
            sock.sendall(b"z" * SIZE)
            sent += 1
            time.sleep(EVERY_S)
        sock.shutdown(socket.SHUT_WR)
        assert sock.makefile().readline() == f"{sent * SIZE}\n"
    return sent


def judge(pairs, delays):
    """An acknowledgement is late if it takes longer than the limit and than the delay that the
    scheduler gave the sentinel, which sleeps on the same core, at the same time."""
    waits = sorted(came - sent for sent, came in pairs)
    late = [
        (came - sent, stolen)
        for sent, came in pairs
        if came - sent > LIMIT_S + (stolen := stolen_between(delays, sent, came))
    ]
    figures = f"{len(waits)} acknowledgements: " + ", ".join(
        f"p{share * 100:g} {waits[min(int(len(waits) * share), len(waits) - 1)] * 1000:.2f} ms"
        for share in (0.5, 0.9, 0.99, 1)
    )
    overshoot = sorted(woke - due for due, woke in delays)
    figures += (
        f"; sentinel late by p50 {overshoot[len(overshoot) // 2] * 1000:.2f}, p99"
        f" {overshoot[len(overshoot) * 99 // 100] * 1000:.2f} ms"
    )
    print(figures)
    assert len(late) <= LATE_SHARE_MAX * len(pairs), f"{len(late)} late ({late[:5]}); {figures}"


def stolen_between(delays, begin, end):
    """For how long the sentinel was kept from running while an acknowledgement was due."""
    return sum(
        min(woke, end) - max(due, begin) for due, woke in delays if woke > begin and due < end
    )


def acknowledgement_times(segments, address):
    """When each data segment came and when the first ACK behind it left, at the peer's end of the
    wire."""
    waiting, pairs = [], []
    for segment in segments:
        if not segment.is_from(address) and segment.length == SIZE:
            waiting.append(segment.time)
        elif segment.is_from(address) and waiting:
            pairs += [(sent, segment.time) for sent in waiting]
            waiting = []
    return pairs


@test(modes=("inprocess",), serial=True, timeout=SECONDS + 60)
def acknowledgements_leave_within_8_ms_while_the_program_sleeps(world):
    acknowledgements_leave(world, "sleep")


@test(modes=("inprocess",), serial=True, timeout=SECONDS + 60)
def acknowledgements_leave_within_8_ms_while_the_program_computes(world):
    acknowledgements_leave(world, "compute")


@test(modes=("inprocess",))
def the_stand_in_looks_rarely_at_a_program_that_is_always_prompt(world):
    server = world.stack(*world.program("threaded.py"), "server", 7600)
    world.wait_port(7600, process=server)
    with world.connect(7600, 20) as sock:
        # Some hundred looks show that it is.
        ask_for(sock, 1.5)
        # A busy machine keeps it from being prompt now and then.
        for _ in range(5):
            looks = looks_at(server.pid)
            asked = ask_for(sock, 1.5)
            now = looks_at(server.pid)
            looks = {task: count - looks.get(task, 0) for task, count in now.items()}
            # Once in 16 ms at each engine; once in 4 ms are 375.
            if looks and max(looks.values()) < 150:
                return
    raise AssertionError(f"{looks} looks in {asked} requests")


def ask_for(sock, seconds):
    asked, end = 0, time.monotonic() + seconds
    while time.monotonic() < end:
        sock.sendall(b"z" * SIZE)
        assert sock.recv(SIZE, socket.MSG_WAITALL) == b"z" * SIZE
        asked += 1
        time.sleep(0.002)
    return asked


def looks_at(pid):
    """How often each of the stand-in's threads has slept."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return {
        task.name: int(
            (task / "status").read_text().split("\nvoluntary_ctxt_switches:")[1].split()[0]
        )
        for task in tasks
        if (task / "comm").read_text().strip() == "slipstack-tick"
    }


@test(serial=True, timeout=90)
def a_lost_answer_is_sent_again_while_the_program_is_away(world):
    server = world.stack(*world.program("away.py"), 7600, 4)
    world.wait_port(7600, process=server)
    with world.connect(7600, 20) as sock:
        # Everything from the stack is lost for a second: `ready` can only come by retransmission.
        block(world, True)
        sock.sendall(b"go")
        time.sleep(1.0)
        block(world, False)
        before = time.monotonic()
        assert sock.recv(5, socket.MSG_WAITALL) == b"ready"
        assert (
            time.monotonic() - before < 2.5
        ), "the retransmission came only after the program woke"


def block(world, is_on):
    """With another link-layer address the peer ignores frames to its old one."""
    if is_on:
        text = world.peer_ns.ip("-o", "link", "show", "eth1")
        world.old_mac = text.split("link/ether ")[1].split()[0]
    world.peer_ns.ip(
        "link", "set", "eth1", "address", "02:00:00:00:00:99" if is_on else world.old_mac
    )

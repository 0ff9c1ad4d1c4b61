"""Connections that a child of their process uses: fork, exec, SCM_RIGHTS."""

import contextlib
import hashlib
import json
import os
import signal
import socket
import struct
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from harness import test
from harness.http import is_reset
from harness.moves import Moves
from harness.process import until

SIZE = 2_000_000
SLIPSTACK = ("inprocess", "instance")


def server(world, how):
    """Starts the server; waiting for its port makes one connection, which ends at once."""
    started = world.stack(*world.program("forking.py"), 7200, how)
    world.wait_port(7200, process=started)
    return started


def wait_for_no_children(started):
    until(lambda: not started.children(), 5, "the children have ended")


def check_answers(world, count):
    for number in range(count):
        with world.connect(7200) as sock:
            sock.sendall(f"number {number}\n".encode())
            assert sock.makefile().readline() == f"child says number {number}\n"
            sock.sendall(b"once more\n")
            assert sock.makefile().readline() == "child says once more\n"
            sock.shutdown(socket.SHUT_WR)
            assert sock.recv(10) == b"", "the child's end is the connection's"


@test
def a_forking_server_ends_every_one_of_many_connections(world):
    """The server forks while other connections of it end."""
    started = server(world, "http")
    text = world.peer(
        "ab", "-q", "-s", 5, "-n", 1500, "-c", 10, f"http://{world.address}:7200/"
    ).finish(50)
    assert "Complete requests:      1500" in text and "Failed requests:        0" in text, text
    wait_for_no_children(started)


@test
def a_forking_server_serves_from_its_children(world):
    started = server(world, "lines")
    check_answers(world, 20)
    wait_for_no_children(started)


@test
def children_of_the_server_may_poll(world):
    started = server(world, "poll")
    check_answers(world, 10)
    wait_for_no_children(started)


@test
def children_in_a_sandbox_may_poll(world):
    started = server(world, "caged")
    check_answers(world, 3)
    wait_for_no_children(started)


@test
def children_may_limit_their_address_space(world):
    started = server(world, "narrow")
    check_answers(world, 3)
    wait_for_no_children(started)


@test
def a_session_whose_standard_error_is_its_connection_gets_no_sentence_into_it(world):
    server(world, "session")
    with world.at_peer():
        listener = socket.create_server((world.peer_address, 0))
    with listener, world.connect(7200) as sock:
        listener.settimeout(10)
        sock.sendall(b"%d\n" % listener.getsockname()[1])
        data, _ = listener.accept()
        with data, data.makefile("rb") as stream:
            assert stream.read() == b"data"
        said = sock.makefile("rb").read()
        assert said == b"sent\n", said


@test
def many_children_serve_at_once(world):
    started = server(world, "lines")
    socks = [world.connect(7200) for _ in range(20)]
    for number, sock in enumerate(socks):
        sock.sendall(f"number {number}\n".encode())
    for number, sock in enumerate(socks):
        assert sock.makefile().readline() == f"child says number {number}\n"
        sock.close()
    wait_for_no_children(started)


@test(modes=SLIPSTACK)
def one_thread_of_the_parent_serves_all_children_and_ends_with_them(world):
    started = server(world, "lines")
    socks = [world.connect(7200) for _ in range(8)]
    for number, sock in enumerate(socks):
        sock.sendall(f"number {number}\n".encode())
        assert sock.makefile().readline() == f"child says number {number}\n"
    assert stewards(started) == 1
    for sock in socks:
        sock.close()
    wait_for_no_children(started)
    until(lambda: stewards(started) == 0, 5, "the thread has ended")
    check_answers(world, 2)


@test
def a_connection_in_constant_use_goes_to_the_child(world):
    for how in ("echo", "epoll"):
        started = server(world, how)
        with world.connect(7200) as sock, sock.makefile("rb") as stream:
            turns(sock, stream, 60)
            if world.mode != "kernel":
                said = world.admin("why", started.children()[0]).output()
                assert "was forked from" not in said and str(sock.getsockname()[1]) in said, said
            os.kill(started.pid, signal.SIGKILL)
            started.wait(5)
            turns(sock, stream, 60)
            data = hashlib.shake_256(b"both ways").digest(SIZE)
            with ThreadPoolExecutor(1) as pool:
                sent = pool.submit(sock.sendall, data)
                assert stream.read(SIZE) == data
                sent.result()
            sock.shutdown(socket.SHUT_WR)
            assert stream.read() == b""


@test
def a_connection_goes_to_the_child_while_the_peer_sends(world):
    started = server(world, "echo")
    lines = [f"{number:09}\n".encode() for number in range(30_000)]
    with world.connect(7200, 30) as sock, sock.makefile("rb") as stream:
        with ThreadPoolExecutor(1) as pool:

            def send():
                for line in lines:
                    sock.sendall(line)
                sock.shutdown(socket.SHUT_WR)

            sent = pool.submit(send)
            assert stream.read() == b"".join(lines)
            sent.result()
    wait_for_no_children(started)


@test
def a_read_with_a_timeout_ends_in_time_though_its_connection_goes_to_the_child(world):
    started = world.stack(*world.program("timing_out.py"), world.address, 7219, 1)
    world.wait_port(7219, process=started)
    with world.connect(7219) as sock, sock.makefile("r") as stream:
        assert 0.99 < float(stream.read()) < 1.15


@test(modes=("inprocess",))
def without_a_free_slot_a_connection_stays_in_the_parent(world):
    base = world.device_options()
    world.device_options = lambda: [*base, "--slots", "2"]
    started = server(world, "echo")
    with contextlib.ExitStack() as stack:
        socks = [stack.enter_context(world.connect(7200)) for _ in range(4)]
        streams = [stack.enter_context(sock.makefile("rb")) for sock in socks]
        for _ in range(3):
            for sock, stream in zip(socks, streams):
                turns(sock, stream, 30)
    wait_for_no_children(started)
    assert len(started.errors().splitlines()) == 1, started.errors()


@test(modes=("inprocess",))
def workers_beyond_the_slots_wait_for_one_and_no_client_is_refused(world):
    """As in Apache's prefork model, each worker waits in accept."""
    base = world.device_options()
    world.device_options = lambda: [*base, "--slots", "3"]
    started = server(world, "prefork")
    for _ in range(20):
        with world.connect(7200) as sock:
            assert int(sock.recv(20)) in started.children()
    said = [world.admin("why", pid).output() for pid in started.children()]
    assert sum("waits for one" in text for text in said) == len(said) - 3, said
    reached, *others = started.errors().splitlines()
    assert len(others) == 1 and "all 3 slots of eth1 are taken" in others[0], started.errors()
    served = {pid for pid, text in zip(started.children(), said) if "waits for one" not in text}
    for pid in served:
        os.kill(pid, signal.SIGKILL)
    until(lambda: served.isdisjoint(started.children()), 5, "those that had a slot have ended")
    with world.connect(7200, 10) as sock:
        assert int(sock.recv(20)) not in served


def turns(sock, stream, count):
    for number in range(count):
        sock.sendall(f"turn {number}\n".encode())
        assert stream.readline() == f"turn {number}\n".encode()


def stewards(started):
    names = []
    for task in Path(f"/proc/{started.pid}/task").iterdir():
        # One may end meanwhile.
        with contextlib.suppress(OSError):
            names.append((task / "comm").read_text())
    return names.count("slipstack-lend\n")


@test
def a_parent_that_waits_is_not_woken_for_its_childrens_data(world):
    started = server(world, "lines")
    with world.connect(7200) as sock, sock.makefile() as stream:
        for turn in range(2):
            before = sleeps(started)
            for number in range(300):
                sock.sendall(b"line\n")
                assert stream.readline() == "child says line\n"
            count = sleeps(started) - before
            # The first round has the fork in it, and the attempts to spin.
            assert turn == 0 or count < 100, f"it slept {count} times"
    wait_for_no_children(started)


def sleeps(started):
    """Returns how often the program's first thread has slept."""
    status = Path(f"/proc/{started.pid}/task/{started.pid}/status").read_text()
    return int(status.split("\nvoluntary_ctxt_switches:")[1].split()[0])


@test
def a_peer_that_does_not_read_holds_up_no_other(world):
    started = server(world, "echo")
    data = hashlib.shake_256(b"echo").digest(SIZE)
    with world.connect(7200, 30) as stuck:
        stuck.setblocking(False)
        sent = 0
        end = time.monotonic() + 0.5
        while time.monotonic() < end:
            try:
                sent += stuck.send(data[sent % SIZE :])
            except BlockingIOError:
                time.sleep(0.01)
        with ThreadPoolExecutor(4) as pool:
            for got in pool.map(lambda _: echoed(world, data), range(4)):
                assert got == data, f"{len(got)} bytes"
        stuck.settimeout(30)
        stuck.shutdown(socket.SHUT_WR)
        count = 0
        while chunk := stuck.recv(65536):
            at = count % SIZE
            assert chunk[: SIZE - at] == data[at : at + len(chunk)], f"at {count}"
            count += len(chunk)
        assert count == sent
    wait_for_no_children(started)


def echoed(world, data):
    """Sends `data` and returns its echo, read meanwhile."""
    with world.connect(7200, 30) as sock, ThreadPoolExecutor(1) as pool:
        sending = pool.submit(lambda: (sock.sendall(data), sock.shutdown(socket.SHUT_WR)))
        got = b"".join(iter(lambda: sock.recv(65536), b""))
        sending.result()
        return got


@test
def a_child_answers_after_its_peers_end(world):
    started = server(world, "half")
    with world.connect(7200) as sock:
        sock.sendall(bytes(SIZE))
        sock.shutdown(socket.SHUT_WR)
        assert sock.makefile().read() == f"{SIZE} bytes\n"
    wait_for_no_children(started)


@test
def data_sent_by_a_child_arrives_after_its_end(world):
    server(world, "bulk")
    with world.connect(7200, 20) as sock:
        time.sleep(0.2)
        data = b""
        while chunk := sock.recv(65536):
            data += chunk
    assert data == hashlib.shake_256(b"bulk").digest(SIZE)


@test
def a_child_that_leaves_bytes_unread_resets(world):
    for how in ("rude", "late"):
        started = server(world, how)
        with world.connect(7200) as sock:
            sock.sendall(b"this is not read")
            assert is_reset(sock, 5), f"bytes are left unread: {how}"
        wait_for_no_children(started)
        started.stop()


@test
def kill_9_of_a_child_ends_its_connection(world):
    started = server(world, "sleep")
    with world.connect(7200) as first, world.connect(7200) as second:
        pids = []
        for sock in (first, second):
            sock.sendall(b"who?")
            pids.append(int(sock.makefile().readline()))
        os.kill(pids[0], signal.SIGKILL)
        assert first.recv(1) == b"", "its connection ends"
        second.settimeout(0.5)
        try:
            assert second.recv(1), "the other child lives"
        except TimeoutError:
            pass
        os.kill(pids[1], signal.SIGKILL)
        second.settimeout(10)
        assert second.recv(1) == b""
    wait_for_no_children(started)


@test
def kill_9_of_a_child_that_has_its_connection_ends_it_in_order(world):
    started = server(world, "echo")
    with world.connect(7200, 20) as idle, world.connect(7200, 20) as busy:
        for sock in (idle, busy):
            turns(sock, sock.makefile("rb"), 40)
        # The connection that looked for the port has had one too.
        until(lambda: len(started.children()) == 2, 5, "each has its child")
        pids = started.children()
        data = hashlib.shake_256(b"echoed").digest(SIZE)
        busy.setblocking(False)
        # Its peer does not read: what it answers waits.
        sent = 0
        with contextlib.suppress(BlockingIOError):
            while sent < SIZE:
                sent += busy.send(data[sent:])
        time.sleep(0.3)
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        busy.settimeout(10)
        assert idle.recv(1) == b"", "the end, and no reset"
        came = bytearray()
        with contextlib.suppress(ConnectionResetError):
            while chunk := busy.recv(65536):
                came += chunk
        assert came and data.startswith(came), "what it had answered"
    wait_for_no_children(started)


@test
def connections_that_a_killed_worker_had_not_accepted_go_to_the_next(world):
    started = world.stack(*world.program("unaccepted.py"), 7210)
    world.wait_port(7210, process=started)
    first = int(until(started.output, 10, "the first worker waits"))
    with contextlib.ExitStack() as stack:
        socks = [stack.enter_context(world.connect(7210, 20)) for _ in range(8)]
        for number, sock in enumerate(socks):
            sock.sendall(b"%d\n" % number)
        socks[0].shutdown(socket.SHUT_WR)
        time.sleep(0.3)
        os.kill(first, signal.SIGKILL)
        for number, sock in enumerate(socks):
            with sock, sock.makefile("rb") as stream:
                assert stream.readline() == b"%d\n" % number
                if number:
                    sock.shutdown(socket.SHUT_WR)
                assert stream.read() == b""
    for pid in started.children():
        os.kill(pid, signal.SIGKILL)
    assert started.wait(5) == 0


@test
def a_child_distinguishes_a_peers_close_from_a_reset(world):
    for how in ("ended", "ended_poll"):
        started = server(world, how)
        until(lambda: started.output() == "end end 0\n", 5, "the first connection has ended")
        for number in range(4):
            with world.connect(7200) as sock:
                sock.sendall(b"some bytes")
                time.sleep(0.1)
                if number % 2:
                    linger = struct.pack("ii", 1, 0)
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            said = ["end end 0\n", "ECONNRESET end 0\n"] * 2
            expected = "end end 0\n" + "".join(said[: number + 1])
            until(lambda: started.output() == expected, 5, "the child hears it")
        wait_for_no_children(started)
        started.stop()


@test(modes=SLIPSTACK)
def why_names_the_connection_of_a_child(world):
    started = server(world, "sleep")
    with world.connect(7200) as sock:
        sock.sendall(b"who?")
        pid = int(sock.makefile().readline())
        said = world.admin("why", pid).output()
        here, there = (":".join(map(str, end)) for end in (sock.getsockname(), sock.getpeername()))
        assert "uses no stack of its own" in said, said
        assert any(
            f"{there}  {here}" in line and "was forked from" in line for line in said.splitlines()
        ), said
        os.kill(pid, signal.SIGKILL)
    wait_for_no_children(started)


@test
def a_copy_in_the_parent_keeps_the_connection_open(world):
    started = server(world, "keep")
    with world.connect(7200) as sock:
        sock.sendall(b"line\n")
        assert sock.makefile().readline() == "child says line\n"
        wait_for_no_children(started)
        sock.settimeout(0.5)
        try:
            assert sock.recv(1), "the parent has it"
        except TimeoutError:
            pass
        started.stop()
        sock.settimeout(10)
        assert sock.recv(1) == b""


SHARING = """
import os, socket, sys
server = socket.create_server((sys.argv[1], 7200))
sock, _ = server.accept()
def talk(count):
    for _ in range(count):
        data = sock.recv(100)
        sock.sendall(b"%d " % (os.getpid() == child) + data)
child = os.fork()
if child == 0:
    child = os.getpid()
    server.close()
    talk(3)
    done, tell = os.pipe()
    stay, leave = os.pipe()
    if os.fork() == 0:
        os.close(leave)
        talk(20)
        os.write(tell, b"x")
        os.read(stay, 1)
        os._exit(0)
    os.close(stay)
    os.read(done, 1)
    talk(20)
    os._exit(0)
sock.close()
os.wait()
"""


@test
def a_child_and_its_own_child_use_a_connection_in_turn(world):
    started = world.stack("/usr/bin/python3", "-c", SHARING, world.address)
    opened = []

    def is_open():
        try:
            opened.append(world.connect(7200))
        except ConnectionRefusedError:
            return False
        return True

    until(is_open, 10, "the listener")
    with opened[0] as sock:
        sock.settimeout(10)
        for number in range(43):
            sock.sendall(b"line %d" % number)
            is_childs = number < 3 or number >= 23
            assert sock.recv(100) == b"%d line %d" % (is_childs, number), number
        assert sock.recv(100) == b""
    started.finish()


@test
def a_program_gets_the_connection_as_its_input_and_output(world):
    for how in ("exec", "run"):
        started = server(world, how)
        data = hashlib.shake_256(b"cat").digest(300_000)
        with world.connect(7200) as sock:
            sock.sendall(data[:1000])
            got = sock.recv(1000, socket.MSG_WAITALL)
            sock.sendall(data[1000:200_000])
            sock.shutdown(socket.SHUT_WR)
            while chunk := sock.recv(65536):
                got += chunk
        assert got == data[:200_000], f"{how}: {len(got)} bytes"
        wait_for_no_children(started)
        started.stop()


@test
def a_peeked_datagram_and_later_ones_of_its_sender_go_to_the_child(world):
    world.stack(*world.program("peeking.py"), 7000)
    with world.at_peer():
        asked, *askers = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(7)]
    asked.settimeout(0.5)
    until(lambda: answer_to(asked, world.address, b"ready?"), 10, "the server answers")
    for asker in askers:
        # No process receives the datagrams of others while the server has not bound again.
        asker.settimeout(0.5)
        until(lambda: answer_to(asker, world.address, b"first"), 10, "a child of its own answers")
    children = {}
    for turn in range(12):
        for number, asker in enumerate(askers):
            asker.settimeout(5)
            data = b"turn %d of %d %s" % (turn, number, b"x" * 900)
            answer = answer_to(asker, world.address, data)
            child, _, rest = answer.partition(b" ")
            assert rest == data, (turn, number, answer[:40])
            assert children.setdefault(number, child) == child, (turn, number, child, children)
    assert len(set(children.values())) == len(askers), children
    if world.mode != "kernel":
        rows = [row for program in programs(world) for row in program["sockets"] if row["remote"]]
        assert {row["local"] for row in rows} == {f"{world.address}:7000"}, rows
    for asker in [asked, *askers]:
        asker.close()


def answer_to(sock, address, data):
    try:
        sock.sendto(data, (address, 7000))
        return sock.recv(65536)
    except TimeoutError:
        return None


def programs(world):
    report = json.loads(world.admin("status", "--json").output())[0]
    return [
        *report["programs"],
        *(program for instance in report["instances"] for program in instance["programs"]),
    ]


@test
def connections_move_between_processes_while_some_are_killed(world):
    started = world.stack(*world.program("moving.py"), world.address, 7300)
    world.wait_port(7300, process=started)
    done = Moves(world, 7300, 3, seed=1).run()
    assert done >= 20, done


@test
def a_child_of_the_system_call_itself_changes_its_group_while_a_thread_begins(world):
    """Two connections at a time: the second child may be made while a thread of ours begins."""
    started = world.stack(*world.program("clones.py"), 7290)
    world.wait_port(7290, process=started)
    for _ in range(40):
        socks = [world.connect(7290, 5) for _ in range(2)]
        for sock in socks:
            sock.sendall(b"x")
        for sock in socks:
            assert sock.recv(1) == b"x"
            sock.close()
        wait_for_no_children(started)

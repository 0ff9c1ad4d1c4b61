"""How programs end, and what their peers see."""

import contextlib
import hashlib
import os
import select
import shutil
import signal
import socket
import threading
import time

from harness import test
from harness.http import Connection, get, is_reset
from harness.nginx import Nginx
from harness.process import until

SLIPSTACK = ("inprocess", "instance")
SIZE = 2_000_000


def everything(sock, seconds=20):
    """All bytes until the end of the stream; a reset is an error."""
    sock.settimeout(seconds)
    data = bytearray()
    while chunk := sock.recv(65536):
        data += chunk
    return bytes(data)


def ends_in_order(world, how, code, meanwhile=lambda: None, way=None, port=7800):
    words = [] if way is None else [way]
    server = world.stack(*world.program("sender.py"), port, SIZE, how, *words)
    sock = connected(world, port)
    with sock:
        queued = int(until(server.output, 10, "the sender has queued"))
        server.wait(10)
        assert server.child.returncode == code, server.tail()
        meanwhile()
        data = everything(sock)
    assert queued > 100_000 and len(data) == queued, f"{len(data)} of {queued} bytes came"
    assert data == hashlib.shake_256(b"queued").digest(SIZE)[:queued]


def connected(world, port):
    end = time.monotonic() + 10
    while True:
        try:
            return world.connect(port, 20)
        except OSError:
            assert time.monotonic() < end
            time.sleep(0.02)


@test
def a_datagram_leaves_whose_program_ends_before_the_neighbour_answers(world):
    with world.at_peer():
        sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        sock.bind((world.peer_address, 7801))
    with sock:
        sock.settimeout(5)
        sender = world.stack("bash", "-c", f"echo last > /dev/udp/{world.peer_address}/7801")
        assert sock.recv(100) == b"last\n", sender.tail()
        assert sender.wait(10) == 0, sender.tail()


@test
def exit_delivers_queued_data(world):
    ends_in_order(world, "exit", 0)


@test
def exit_delivers_to_a_peer_that_reads_late(world):
    ends_in_order(world, "exit", 0, lambda: time.sleep(1))


@test
def _exit_delivers_queued_data(world):
    ends_in_order(world, "_exit", 0)


@test
def sigterm_delivers_queued_data(world):
    ends_in_order(world, "sigterm", -signal.SIGTERM)


@test
def ctrl_c_delivers_queued_data(world):
    ends_in_order(world, "sigint", -signal.SIGINT)


@test
def kill_9_delivers_queued_data(world):
    ends_in_order(world, "sigkill", -signal.SIGKILL)


@test
def kill_9_delivers_to_a_peer_that_reads_late(world):
    ends_in_order(world, "sigkill", -signal.SIGKILL, lambda: time.sleep(1))


@test(modes=("kernel", *SLIPSTACK))
def kill_9_delivers_the_way_that_a_program_has_chosen(world):
    def rule(verb, which):
        words = "ip", "rule", verb, "blackhole", "not", *which, "to", world.peer_address
        if world.mode == "kernel":
            world.stack_ns.ip(*words[1:])
        else:
            world.admin(*words).finish()

    ways = {
        "priority": None,
        "device": None,
        "mark": ("fwmark", "7"),
        "tos": ("tos", "0x10"),
    }
    for port, (way, which) in enumerate(ways.items(), 7802):

        def only_this_way():
            if which:
                rule("add", which)
            time.sleep(1)

        ends_in_order(world, "sigkill", -signal.SIGKILL, only_this_way, way, port)
        if which:
            rule("del", which)


@test
def sigterm_from_outside_delivers_queued_data(world):
    server = world.stack(*world.program("sender.py"), 7800, SIZE, "sleep")
    with connected(world, 7800) as sock:
        # Reads nothing yet, so the rest waits in the buffers.
        queued = int(until(server.output, 10, "the sender has queued"))
        assert server.stop() == -signal.SIGTERM
        data = everything(sock)
    assert len(data) == queued, f"{len(data)} of {queued} bytes came"


@test
def a_new_program_takes_the_port_at_once_after_an_ordered_end(world):
    for _ in range(3):
        server = world.stack(*world.program("threaded.py"), "server", 7000)
        world.wait_port(7000, process=server)
        with world.connect(7000) as sock:
            sock.sendall(b"x")
            assert sock.recv(1) == b"x"
            server.stop()


def start_transfers(world, count):
    server = world.stack(*world.program("transfers.py"), 7900)
    world.wait_port(7900, process=server)
    streams = [world.connect(7900) for _ in range(count)]
    for sock in streams:
        sock.sendall(b"stream")
    silent = [world.connect(7900) for _ in range(20)]
    for sock in silent:
        sock.sendall(b"silent")
        assert sock.recv(10) == b"quiet"
    return server, streams, silent


class Readers:
    """Reads all streams; remembers when each one was reset."""

    def __init__(self, socks):
        self.socks = list(socks)
        self.reset_at = {}
        self.ended = set()
        self.bytes = 0
        self.thread = threading.Thread(target=self._loop, daemon=True)
        self.is_over = False
        self.thread.start()

    def _loop(self):
        poll = select.poll()
        by_fd = {sock.fileno(): sock for sock in self.socks}
        for sock in self.socks:
            sock.setblocking(False)
            poll.register(sock, select.POLLIN)
        while by_fd and not self.is_over:
            for fd, _ in poll.poll(100):
                try:
                    chunk = by_fd[fd].recv(65536)
                    self.bytes += len(chunk)
                    if chunk:
                        continue
                    self.ended.add(fd)
                except BlockingIOError:
                    continue
                except OSError:
                    self.reset_at[fd] = time.monotonic()
                poll.unregister(fd)
                del by_fd[fd]

    def wait(self, seconds):
        self.thread.join(seconds)
        self.is_over = True
        self.thread.join(2)


@test(serial=True)
def kill_9_ends_transfers_and_silent_peers_in_order(world):
    """As the kernel does: what was written comes, and the end. Unread bytes make a reset."""
    server, streams, silent = start_transfers(world, 100)
    half = world.connect(7900)
    half.sendall(b"silent")
    assert half.recv(10) == b"quiet"
    deaf = world.connect(7900)
    deaf.sendall(b"deaf")
    assert deaf.recv(10) == b"quiet"
    deaf.sendall(b"nobody reads this")
    readers = Readers(streams + silent)
    until(lambda: readers.bytes > 1_000_000, 10, "data flows")
    os.kill(server.pid, signal.SIGKILL)
    server.wait()
    with half:
        half.shutdown(socket.SHUT_WR)
        assert everything(half, 5) == b"", "the end, though ours had come first"
    assert is_reset(deaf, 3), "the peer of who had not read"
    readers.wait(5)
    assert len(readers.ended) == 120 and not readers.reset_at, (
        f"{len(readers.ended)} of 120 ended, {len(readers.reset_at)} were reset"
    )


@test(serial=True)
def after_kill_9_the_port_can_be_listened_on_at_once(world):
    for _ in range(3):
        server, streams, silent = start_transfers(world, 10)
        os.kill(server.pid, signal.SIGKILL)
        server.wait()
        again = world.stack(*world.program("threaded.py"), "server", 7900)
        until(lambda: is_echoed(world, 7900) or not again.is_running(), 3, "the new server answers")
        assert again.is_running(), again.tail()
        again.stop()
        for sock in streams + silent:
            sock.close()


def is_echoed(world, port):
    try:
        with world.connect(port, 1) as sock:
            sock.sendall(b"x")
            return sock.recv(1) == b"x"
    except OSError:
        return False


@test(modes=("instance",), serial=True)
def kill_9_of_the_instance_is_reported_to_its_programs(world):
    server = world.stack(*world.program("told.py"), 7950, world.peer_address)
    world.wait_port(7950, process=server)
    sock = world.connect(7950)
    sock.sendall(b"wait")
    assert sock.recv(10) == b"waiting"
    os.kill(world.instance.pid, signal.SIGKILL)
    world.instance.wait()
    text = until(
        lambda: server.output() if "connection:" in server.output() else None,
        3,
        "the program is told",
    )
    assert "ECONNRESET" in text or "ENETDOWN" in text, text
    assert server.wait(5) == 0, server.tail()
    assert is_reset(sock, 1.0), "the peer is reset"
    world.instance = None


@test(modes=SLIPSTACK, serial=True)
def kill_9_of_the_keeper_leaves_connections_running(world):
    nginx = Nginx(world)
    (keeper,) = keepers(world)
    with Connection(world.connect(8080)) as connection:
        # A worker has it.
        assert connection.get() == (200, b"hello from nginx\n")
        os.kill(keeper, signal.SIGKILL)
        time.sleep(0.2)
        for _ in range(10):
            assert connection.get() == (200, b"hello from nginx\n")
    until(lambda: keepers(world) and keepers(world) != [keeper], 5, "a successor")
    assert get(world, 8080) == (200, b"hello from nginx\n")
    world.peer_ns.ip("neigh", "flush", "dev", "eth1")
    assert get(world, 8080) == (200, b"hello from nginx\n"), "the successor answers ARP"
    other = world.stack(*world.program("threaded.py"), "server", 7000)
    world.wait_port(7000, process=other)
    assert nginx.process.is_running()
    os.kill(keepers(world)[0], signal.SIGKILL)
    time.sleep(0.3)
    assert get(world, 8080) == (200, b"hello from nginx\n"), "and so does the successor's successor"


def keeper_ends_while_it_delivers(world, number):
    """The program is long gone when its keeper ends, and that one's successor too."""
    server = world.stack(*world.program("sender.py"), 7800, SIZE, "exit")
    with connected(world, 7800) as sock:
        queued = int(until(server.output, 10, "the sender has queued"))
        assert server.wait(10) == 0, server.tail()
        data = bytearray()
        sock.settimeout(20)
        for target in (100_000, 200_000, 300_000):
            while len(data) < target and (chunk := sock.recv(10_000)):
                data += chunk
            (keeper,) = keepers(world)
            os.kill(keeper, number)
            until(lambda: keepers(world) not in ([], [keeper]), 5, "a successor")
        data += everything(sock)
    assert queued > 100_000 and len(data) == queued, f"{len(data)} of {queued} bytes came"
    assert bytes(data) == hashlib.shake_256(b"queued").digest(SIZE)[:queued]


@test(modes=SLIPSTACK, serial=True)
def kill_9_of_the_keeper_does_not_stop_its_deliveries(world):
    keeper_ends_while_it_delivers(world, signal.SIGKILL)


@test(modes=SLIPSTACK, serial=True)
def sigterm_of_the_keeper_does_not_stop_its_deliveries(world):
    keeper_ends_while_it_delivers(world, signal.SIGTERM)


@test(modes=SLIPSTACK, serial=True)
def sigterm_of_the_keeper_hands_over_to_its_standby(world):
    server = world.stack(*world.program("threaded.py"), "server", 7000)
    world.wait_port(7000, process=server)
    with world.connect(7000) as sock:
        (keeper,) = keepers(world)
        os.kill(keeper, signal.SIGTERM)
        until(lambda: not os.path.exists(f"/proc/{keeper}/exe"), 5, "the keeper ends")
        until(lambda: keepers(world) not in ([], [keeper]), 5, "a successor")
        sock.sendall(b"still")
        assert sock.recv(10) == b"still"
    assert is_echoed(world, 7000)


def instance_ends_while_its_programs_send(world, end):
    server = world.stack(*world.program("sender.py"), 7800, SIZE, "sleep")
    with connected(world, 7800) as sock:
        queued = int(until(server.output, 10, "the sender has queued"))
        end()
        world.instance.wait(10)
        data = everything(sock)
    world.instance = None
    assert queued > 100_000 and len(data) == queued, f"{len(data)} of {queued} bytes came"
    assert data == hashlib.shake_256(b"queued").digest(SIZE)[:queued]


@test(modes=("instance",))
def sigterm_of_the_instance_delivers_queued_data(world):
    instance_ends_while_its_programs_send(world, lambda: world.instance.signal(signal.SIGTERM))


@test(modes=("instance",))
def ctrl_c_of_the_instance_delivers_queued_data(world):
    instance_ends_while_its_programs_send(world, lambda: world.instance.signal(signal.SIGINT))


@test(modes=("instance",))
def an_instance_goes_on_after_a_hang_up_and_ends_in_order_later(world):
    def end():
        world.instance.signal(signal.SIGHUP)
        until(lambda: "slipstack" in world.instance.errors(), 10, "the reload has said something")
        world.instance.signal(signal.SIGTERM)

    instance_ends_while_its_programs_send(world, end)


@test(modes=("instance",))
def an_instance_under_nohup_outlives_its_terminal(world):
    words = [
        "nohup",
        str(world.slipstack),
        "instance",
        "--name",
        "t",
        "--run-dir",
        str(world.run_dir),
    ]
    world.instance = world.process(world.stack_ns.prefix() + words + world.device_options())
    until(lambda: "is ready" in world.instance.output(), 10, "the instance is ready")
    world.instance.signal(signal.SIGHUP)
    time.sleep(0.3)
    assert world.instance.is_running()
    world.instance.stop()


@test(modes=("instance",))
def stop_of_the_instance_delivers_queued_data(world):
    instance_ends_while_its_programs_send(world, lambda: world.admin("stop", "t"))


@test(modes=("instance",), serial=True)
def sigterm_of_the_instance_is_reported_to_its_programs(world):
    server = world.stack(*world.program("told.py"), 7950, world.peer_address)
    world.wait_port(7950, process=server)
    sock = world.connect(7950)
    sock.sendall(b"wait")
    assert sock.recv(10) == b"waiting"
    world.instance.signal(signal.SIGTERM)
    assert world.instance.wait(5) == 0
    text = until(
        lambda: server.output() if "connection:" in server.output() else None,
        3,
        "the program is told",
    )
    assert "ECONNRESET" in text or "ENETDOWN" in text, text
    assert sock.recv(10) == b"", "the peer sees the end of the stream"
    world.instance = None


def keepers(world):
    import json

    status = world.admin("status", "--json")
    if status.child.returncode != 0:
        return []
    return [report["keeper_pid"] for report in json.loads(status.output())]


@test
def nothing_is_left_after_the_last_program(world):
    server = world.stack(*world.program("forking.py"), 7200, "lines")
    world.wait_port(7200, process=server)
    # A client is answered after the one that tried the port: that one has been accepted too.
    with world.connect(7200) as sock, sock.makefile("rw") as lines:
        lines.write("a line\n")
        lines.flush()
        assert lines.readline() == "child says a line\n"
    server.stop()
    if world.instance is not None:
        world.instance.signal(signal.SIGTERM)
        world.instance.wait(5)
    left = world.leftovers()
    assert not left, f"left by itself: {left}"


@test(modes=SLIPSTACK)
def nothing_is_left_after_kill_9_of_everything(world):
    nginx = Nginx(world, workers=2)
    assert get(world, 8080)[0] == 200
    # A standby takes over from the dead keeper, so one round is not enough.
    end = time.monotonic() + 5
    while pids := world.stack_ns.pids():
        assert time.monotonic() < end, pids
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for process in world.processes:
            process.child.poll()
    nginx.process.wait(5)
    # A new start clears away what could not be cleared by the dead.
    world.instance = None
    again = world.stack(*world.program("threaded.py"), "server", 8080)
    world.wait_port(8080, process=again)


@test(modes=("instance",), serial=True)
def kill_9_of_the_instance_is_reported_to_a_program_that_only_polls(world):
    """A program that never waits has no wait that the end of its instance could end."""
    with world.at_peer():
        server = socket.create_server((world.peer_address, 7960))
    with server:
        client = world.stack(*world.program("asks.py"), world.peer_address, 7960)
        sock, _ = server.accept()
        until(lambda: "asks" in client.output(), 10, "the program asks")
        os.kill(world.instance.pid, signal.SIGKILL)
        world.instance.wait()
        assert client.wait(5) == 0, client.tail()
        assert "ECONNRESET" in client.output() or "ENETDOWN" in client.output(), client.tail()
        sock.close()
    world.instance = None


@test(modes=("inprocess",), serial=True)
def without_any_keeper_segments_are_acknowledged_in_time(world):
    """Keeper and standby are killed: the ticker still acts for a program that computes."""
    import json

    server = world.stack(*world.program("away.py"), 7970, 6, "compute")
    world.wait_port(7970, process=server)
    with world.connect(7970) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        (report,) = json.loads(world.admin("status", "--json").output())
        for pid in (report["standby_pid"], report["keeper_pid"]):
            os.kill(pid, signal.SIGKILL)
        # The neighbour entries remain.
        sock.sendall(b"go")
        assert sock.recv(5, socket.MSG_WAITALL) == b"ready"
        time.sleep(1.5)
        waits = []
        for _ in range(40):
            sock.sendall(b"x")
            began = time.monotonic()
            # tcpi_unacked
            while int.from_bytes(
                sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104)[24:28], "little"
            ):
                time.sleep(0.001)
            waits.append(time.monotonic() - began)
            time.sleep(0.05)
        late = [wait for wait in waits if wait > 0.15]
        assert len(late) <= 2, f"late: {late}"
    server.kill()
    # No process is left to remove it.
    shutil.rmtree(world.run_dir)


@test(modes=("inprocess",))
def a_second_program_keeps_running_when_the_first_is_killed(world):
    first = world.stack(*world.program("threaded.py"), "server", 7000)
    second = world.stack(*world.program("threaded.py"), "server", 7001)
    world.wait_port(7000, process=first)
    world.wait_port(7001, process=second)
    with world.connect(7001) as sock:
        os.kill(first.pid, signal.SIGKILL)
        first.wait()
        for _ in range(20):
            sock.sendall(b"still")
            assert sock.recv(10) == b"still"
            time.sleep(0.02)
    until(lambda: not is_echoed(world, 7000), 2, "the killed one's port is closed")


@test(modes=("instance",), serial=True)
def a_restarted_instance_costs_its_programs_no_descriptor(world):
    counts = []
    with world.at_peer():
        server = socket.create_server((world.peer_address, 7970))
    with server:
        server.settimeout(10)
        world.stack(*world.program("returning.py"), world.peer_address, 7970)
        for _ in range(4):
            sock, _ = server.accept()
            with sock:
                counts.append(int(sock.recv(10)))
                os.kill(world.instance.pid, signal.SIGKILL)
                world.instance.wait()
                world.instance = world.start_instance("t")
    # The first restart may leave one descriptor for ever; no other may.
    assert counts[-1] == counts[1], counts

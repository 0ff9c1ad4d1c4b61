"""TIME-WAIT after the end of its program: another segment of the peer, and a new connection with
the same two ends."""

import contextlib
import json
import socket
import struct
import subprocess

from harness import test
from harness.process import until
from harness.world import PYTHON

PORT = 7720
FIN, SYN, RST, ACK = 1, 2, 4, 16
FRAMES_MAX = 10_000


class Wire:
    """Captures frames of the peer's interface, and injects frames."""

    def __init__(self, world):
        with world.at_peer():
            self.raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
        self.raw.bind(("eth1", 0))
        self.raw.settimeout(3)

    def close(self):
        self.raw.close()

    def next(self, src, dst):
        """The next segment between these two ends: the frame, its flags, number and
        acknowledgement."""
        for _ in range(FRAMES_MAX):
            frame = self.raw.recv(65536)
            if frame[12:14] != b"\x08\0" or frame[23] != socket.IPPROTO_TCP:
                continue
            tcp = 14 + 4 * (frame[14] & 15)
            ports = struct.unpack(">HH", frame[tcp : tcp + 4])
            addresses = [socket.inet_ntoa(frame[at : at + 4]) for at in (26, 30)]
            if list(zip(addresses, ports)) == [src, dst]:
                seq, ack = struct.unpack(">II", frame[tcp + 4 : tcp + 12])
                return frame, frame[tcp + 13], seq, ack
        raise AssertionError("nothing but other frames")

    def send(self, frame):
        self.raw.send(with_checksum(frame))


def with_checksum(frame):
    """The kernel leaves a segment's checksum to its device."""
    end = 14 + struct.unpack(">H", frame[16:18])[0]
    tcp = 14 + 4 * (frame[14] & 15)
    segment = frame[tcp : tcp + 16] + b"\0\0" + frame[tcp + 18 : end]
    summed = frame[26:34] + struct.pack(">HH", socket.IPPROTO_TCP, len(segment)) + segment
    summed += b"\0" * (len(summed) % 2)
    total = sum(struct.unpack(f">{len(summed) // 2}H", summed))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return frame[:tcp] + segment[:16] + struct.pack(">H", total ^ 0xFFFF) + segment[18:]


def hold_keeper(world):
    """Somebody else uses the device: its keeper stays. A reset of the peer's, which has closed,
    ends nothing (RFC 1337)."""
    if world.mode == "inprocess":
        other = world.stack(*world.program("threaded.py"), "server", PORT + 1)
        world.wait_port(PORT + 1, process=other)
    elif world.mode == "instance":
        world.start_instance("other")
    else:
        world.stack_ns.sysctl("net.ipv4.tcp_rfc1337", 1)


def serve(world):
    server = world.stack(*world.program("closes_first.py"), PORT)
    until(lambda: "listens" in server.output() or not server.is_running(), 10, "the server listens")
    assert server.is_running(), server.tail()
    return server


def end(world, program):
    """The program's engine ends: with it, or with its instance."""
    program.stop(5)
    if world.instance is not None:
        world.instance.stop(5)
        world.instance = None


def use(world, wire, port=0):
    """A connection that the server closes first: the frame of the peer's end, the two ends, and
    what acknowledged it."""
    with world.at_peer():
        sock = socket.socket()
    with sock:
        sock.settimeout(10)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((world.peer_address, port))
        sock.connect((world.address, PORT))
        client = sock.getsockname()
        assert sock.recv(10) == b"hello" and sock.recv(10) == b""
    return last_end(wire, client, (world.address, PORT))


def last_end(wire, client, server):
    """As `use`, of a connection that has ended."""
    flags = 0
    while not flags & FIN:
        frame, flags, seq, _ = wire.next(client, server)
    ack = 0
    while ack != (seq + 1) % 2**32:
        ack = wire.next(server, client)[3]
    return frame, client, server, ack


def is_acknowledged(wire, frame, peer, ours, ack):
    """The end once more, as if the last ACK had been lost."""
    wire.send(frame)
    flags, _, acked = wire.next(ours, peer)[1:]
    assert flags & (ACK | RST) == ACK, f"flags {flags:#x}"
    assert acked == ack, f"{acked}, not {ack}"


@test
def time_wait_outlives_the_program_that_closed_first(world):
    hold_keeper(world)
    server = serve(world)
    with contextlib.closing(Wire(world)) as wire:
        ended = use(world, wire)
        end(world, server)
        is_acknowledged(wire, *ended)
        # Another program listens meanwhile, which does not know the connection.
        serve(world)
        is_acknowledged(wire, *ended)


@test
def time_wait_outlives_a_program_that_is_killed(world):
    """Or its instance."""
    hold_keeper(world)
    server = serve(world)
    with contextlib.closing(Wire(world)) as wire:
        ended = [use(world, wire) for _ in range(3)]
        killed = world.instance or server
        killed.kill()
        world.instance = None
        for one in ended:
            is_acknowledged(wire, *one)
        if server.is_running():
            server.kill()
        serve(world)
        for one in ended:
            is_acknowledged(wire, *one)


@test
def time_wait_outlives_workers_that_are_killed(world):
    """Others have their port meanwhile."""
    if world.mode == "kernel":
        world.stack_ns.sysctl("net.ipv4.tcp_rfc1337", 1)
    words = [*world.program("killed_workers.py"), PORT, 3]
    workers = world.stack(*words, stdin=subprocess.PIPE)
    world.wait_port(PORT, process=workers)
    with contextlib.closing(Wire(world)) as wire:
        ended = []
        for _ in range(12):
            with world.connect(PORT) as sock:
                client = sock.getsockname()
                sock.sendall(b"question")
                assert b"question" in sock.makefile("rb").read()
            ended.append(last_end(wire, client, (world.address, PORT)))
        for count in range(3):
            workers.child.stdin.write(b"\n")
            workers.child.stdin.flush()
            until(lambda: len(workers.output().split()) > count + 1, 10, "a worker is killed")
        for one in ended:
            is_acknowledged(wire, *one)


@test
def the_two_ends_of_an_outlived_time_wait_are_used_again(world):
    hold_keeper(world)
    server = serve(world)
    with contextlib.closing(Wire(world)) as wire:
        first, client, ours, _ = use(world, wire)
        for _ in range(3):
            end(world, server)
            server = serve(world)
            last = use(world, wire, client[1])
            assert last[1] == client
            # Of the first connection: it is no longer the last.
            wire.send(first)
            flags = wire.next(ours, client)[1]
            assert flags & RST == 0, f"flags {flags:#x}"
        end(world, server)
        is_acknowledged(wire, *last)


@test
def time_wait_outlives_an_engine_that_its_program_gives_back(world):
    """The thread that closes first has had an engine of its own."""
    if world.mode == "kernel":
        world.stack_ns.sysctl("net.ipv4.tcp_rfc1337", 1)
    server = world.stack(*world.program("engines.py"), "each", PORT, 0)
    world.wait_port(PORT, process=server)

    def engines():
        (report,) = json.loads(world.admin("status", "--json").finish())
        return len(report["engines"])

    with contextlib.closing(Wire(world)) as wire:
        sock = world.connect(PORT)
        with sock:
            client = sock.getsockname()

            def is_answered_by_two_engines():
                sock.sendall(b"who\n")
                assert sock.recv(100)
                return world.mode != "inprocess" or engines() == 2

            until(is_answered_by_two_engines, 10, "two engines")
            sock.sendall(b"bye\n")
            assert sock.recv(100) == b""
        ended = last_end(wire, client, (world.address, PORT))
        is_acknowledged(wire, *ended)
        if world.mode == "inprocess":
            until(lambda: engines() == 1, 20, "one engine")
        is_acknowledged(wire, *ended)


ENDS_FIRST = """
import socket, sys
with socket.create_connection((sys.argv[1], int(sys.argv[2]))) as connection:
    connection.shutdown(socket.SHUT_WR)
    connection.recv(1)
"""


@test
def time_wait_outlives_a_client_whose_port_is_free_again(world):
    hold_keeper(world)
    with contextlib.closing(Wire(world)) as wire:
        with world.at_peer():
            listener = socket.create_server((world.peer_address, PORT))
        with listener:
            listener.settimeout(10)
            client = world.stack(PYTHON, "-c", ENDS_FIRST, world.peer_address, PORT)
            connection, ours = listener.accept()
            with connection:
                assert connection.recv(1) == b""
        peer = (world.peer_address, PORT)
        flags = 0
        while not flags & FIN:
            frame, flags, seq, _ = wire.next(peer, ours)
        client.finish(10)
        end(world, client)
        ack = 0
        while ack != (seq + 1) % 2**32:
            ack = wire.next(ours, peer)[3]
        is_acknowledged(wire, frame, peer, ours, ack)

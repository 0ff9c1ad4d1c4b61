"""Servers inside the engine against clients on the kernel."""

import os
import signal
import socket
import threading

from harness import test
from harness.process import until

ALONE = ("inprocess",)


def serve(world, kind, *more):
    """Starts `slipstack serve KIND` on the veth pair and waits until it listens."""
    words = [
        str(world.slipstack),
        "serve",
        kind,
        "--run-dir",
        str(world.run_dir),
        *world.device_options(),
    ]
    started = world.process(world.stack_ns.prefix() + words + [str(word) for word in more])
    until(
        lambda: "is served" in started.output() or not started.is_running(),
        15,
        "the server listens",
    )
    assert started.is_running(), started.tail()
    return started


def exchange(sock, data):
    """Sends data while it reads as much back, then FIN, then the peer's end."""

    def send():
        sock.sendall(data)
        sock.shutdown(socket.SHUT_WR)

    sender = threading.Thread(target=send)
    sender.start()
    back = bytearray()
    while piece := sock.recv(1 << 16):
        back += piece
    sender.join()
    return bytes(back)


def echoes(world, *more):
    serve(world, "echo", "--port", 7000, *more)
    data = os.urandom(3_000_000)
    with world.connect(7000) as sock:
        assert exchange(sock, data) == data
    with world.connect(7000) as sock:
        assert exchange(sock, b"") == b""


@test(modes=ALONE)
def echo_sends_everything_back_and_then_its_end(world):
    echoes(world)


@test(modes=ALONE)
def echo_by_workers_keeps_the_order(world):
    echoes(world, "--shape", "pipeline", "--workers", 2)


@test(modes=ALONE)
def echo_by_engine_and_workers_keeps_the_order(world):
    echoes(world, "--shape", "mixed", "--mixed-max", 1000, "--workers", 2)


@test(modes=ALONE)
def echo_serves_both_families_and_datagrams(world):
    world.use_ipv6()
    serve(world, "echo", "--port", 7000)
    for family, address in ((socket.AF_INET, world.STACK), (socket.AF_INET6, world.STACK6)):
        with world.peer_ns.inside():
            tcp = socket.socket(family)
            udp = socket.socket(family, socket.SOCK_DGRAM)
        with tcp, udp:
            tcp.settimeout(10)
            tcp.connect((address, 7000))
            assert exchange(tcp, b"\0\xff" * 1000) == b"\0\xff" * 1000
            udp.settimeout(10)
            udp.connect((address, 7000))
            for size in (0, 1, 1400, 8000):
                udp.send(b"x" * size)
                assert udp.recv(65536) == b"x" * size


@test(modes=ALONE)
def an_idle_connection_delays_no_other_and_ends_after_its_time(world):
    serve(world, "echo", "--port", 7000, "--idle", 2)
    silent = world.connect(7000)
    for _ in range(20):
        with world.connect(7000) as sock:
            assert exchange(sock, b"hello") == b"hello"
    silent.settimeout(10)
    try:
        assert silent.recv(1) == b""
    except ConnectionResetError:
        pass


@test(modes=ALONE)
def silent_connections_keep_no_worker_from_the_others(world):
    serve(world, "echo", "--port", 7000, "--shape", "pipeline", "--workers", 1)
    silent = [world.connect(7000) for _ in range(20)]
    done = world.peer(
        world.slipstack,
        "bench",
        "--kernel",
        "-n",
        200,
        "-r",
        2,
        "--out",
        world.folder / "times",
        f"{world.address}:7000",
    )
    assert (
        done.wait(30) == 0 and "200 connections, 2 rounds, 0 failed" in done.errors()
    ), done.tail()
    for sock in silent:
        with sock:
            assert exchange(sock, b"hello") == b"hello"


@test(modes=ALONE)
def no_more_connections_than_are_allowed(world):
    serve(world, "echo", "--port", 7000, "--connections", 3)
    held = [world.connect(7000) for _ in range(3)]
    for sock in held:
        sock.sendall(b"x")
        assert sock.recv(1) == b"x"
    try:
        with world.connect(7000) as further:
            assert further.recv(1) == b""
    except ConnectionResetError:
        pass
    held[0].sendall(b"y")
    assert held[0].recv(1) == b"y"


@test(modes=ALONE)
def sigterm_closes_a_thousand_connections(world):
    server = serve(world, "echo", "--port", 7000)
    held = [world.connect(7000) for _ in range(1000)]
    for sock in held:
        sock.sendall(b"hello")
    for sock in held:
        assert sock.recv(5) == b"hello"
    server.signal(signal.SIGTERM)
    for sock in held:
        assert sock.recv(1) == b"", "closed in order"
    assert server.wait(10) == 0, server.tail()


@test(modes=ALONE)
def a_port_in_use_is_reported(world):
    serve(world, "echo", "--port", 7000)
    words = [
        str(world.slipstack),
        "serve",
        "echo",
        "--port",
        "7000",
        "--run-dir",
        str(world.run_dir),
        *world.device_options(),
    ]
    second = world.process(world.stack_ns.prefix() + words)
    assert second.wait(15) == 1
    assert "port 7000 is in use" in second.errors(), second.tail()


@test(modes=ALONE)
def two_engines_share_a_port(world):
    if (os.cpu_count() or 1) < 2:
        return
    server = serve(world, "echo", "--port", 7000, "--cores", "0-1")
    assert "2 engines" in server.output()
    for _ in range(40):
        with world.connect(7000) as sock:
            assert exchange(sock, b"hello") == b"hello"


@test(modes=ALONE)
def the_same_server_runs_on_the_kernels_sockets(world):
    for cores in ("0", "0-1"):
        server = world.peer(
            world.slipstack, "serve", "echo", "--kernel", "--port", 7000, "--cores", cores
        )
        until(
            lambda: "is served on the kernel" in server.output() or not server.is_running(),
            10,
            "it listens",
        )
        data = os.urandom(1_000_000)
        with world.peer_ns.inside():
            sock = socket.create_connection((world.PEER, 7000), timeout=10)
            other = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        assert exchange(sock, data) == data
        other.settimeout(10)
        other.sendto(b"datagram", (world.PEER, 7000))
        assert other.recv(100) == b"datagram"
        second = world.peer(world.slipstack, "serve", "echo", "--kernel", "--port", 7000)
        assert second.wait(10) == 1 and "port 7000 is in use" in second.errors(), second.tail()
        server.signal(signal.SIGTERM)
        assert server.wait(10) == 0, server.tail()


@test(modes=ALONE)
def a_handler_that_panics_loses_its_connection_and_no_other(world):
    server = serve(world, "faulty", "--port", 7000)

    def says(sock, data):
        sock.sendall(data)
        assert sock.recv(100) == data

    good = world.connect(7000)
    for number, fault in enumerate((b"data", b"job", b"end", b"closed", b"data")):
        says(good, b"hello")
        bad = world.connect(7000)
        if fault in (b"data", b"job"):
            bad.sendall(fault)
        else:
            says(bad, fault)
            bad.shutdown(socket.SHUT_WR)
        bad.settimeout(10)
        try:
            while piece := bad.recv(100):
                assert piece == fault == b"job"
            assert fault == b"closed", f"{fault}: an end in order"
        except ConnectionResetError:
            assert fault != b"closed"
        until(
            lambda: server.errors().count("asked to by the peer") == number + 1,
            10,
            "the panic is said",
        )
    says(good, b"hello again")
    server.signal(signal.SIGTERM)
    assert good.recv(1) == b"" and server.wait(10) == 0, server.tail()

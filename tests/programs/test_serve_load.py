"""`slipstack serve http` under clients that use more resources than ordinary ones."""

import resource
import signal
import socket
import time

from harness import test
from harness.process import until

from test_serve import ALONE, serve
from test_serve_http import HOST, PORT, files, raw

IDLE = 10_000
REQUEST = b"GET /hello HTTP/1.1\r\n" + HOST + b"\r\n"


def resident(process):
    with open(f"/proc/{process.pid}/status") as file:
        return int(next(line for line in file if line.startswith("VmRSS:")).split()[1]) * 1024


def http(world, *more):
    return serve(world, "http", files(world), "--port", PORT, *more)


@test(modes=ALONE, timeout=90)
def ten_thousand_idle_connections_are_held_and_cost_little(world):
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 20_000), hard))
    server = http(world, "--backlog", 4096)
    held = []

    def more(count):
        for _ in range(count):
            sock = world.connect(PORT)
            sock.sendall(REQUEST)
            held.append(sock)
        for sock in held[-count:]:
            assert b"hello from a file" in sock.recv(1000)

    more(500)
    before = resident(server)
    for _ in range((IDLE - 500) // 500):
        more(500)
    # Unused rings are freed.
    time.sleep(0.5)
    each = (resident(server) - before) / (IDLE - 500)
    assert each < 4096, f"{each:.0f} bytes for each idle connection, stack and service"
    for sock in held[::500]:
        sock.sendall(REQUEST)
        assert b"hello from a file" in sock.recv(1000)
    for sock in held:
        sock.close()


@test(modes=ALONE)
def connections_beyond_the_limit_of_an_address_are_reset_and_counted(world):
    server = http(world, "--connections-per-address", 3)
    held = [world.connect(PORT) for _ in range(3)]
    for sock in held:
        sock.sendall(REQUEST)
        assert b"hello" in sock.recv(1000)

    def answer():
        try:
            return raw(world, PORT, b"GET /hello HTTP/1.0\r\n\r\n")
        except (ConnectionResetError, BrokenPipeError):
            return [0]

    for _ in range(5):
        assert answer() == [0]
    held.pop().close()
    until(lambda: answer() == [200], 5, "a place is free again")
    server.stop()
    assert "connections were refused because a limit was reached" in server.errors(), server.tail()


@test(modes=ALONE)
def slow_clients_are_served_and_delay_no_other(world):
    http(world, "--head-timeout", 2, "--idle", 10)
    writer, reader = world.connect(PORT), world.connect(PORT)
    reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
    reader.sendall(b"GET /big.bin HTTP/1.1\r\n" + HOST + b"\r\n")
    taken, slow = 0, b"GET /hello HTTP/1.0\r\n\r\n"
    for at in range(len(slow)):
        writer.sendall(slow[at : at + 1])
        taken += len(reader.recv(1))
        begun = time.monotonic()
        assert raw(world, PORT, b"GET /hello HTTP/1.0\r\n\r\n") == [200]
        assert time.monotonic() - begun < 1
        time.sleep(0.03)
    assert b"hello from a file" in writer.recv(1000) and taken == len(slow)
    # A head that comes for ever is ended in its time.
    writer = world.connect(PORT)
    writer.settimeout(0.2)
    begun, answer = time.monotonic(), b""
    while not answer and time.monotonic() - begun < 8:
        writer.sendall(b"G" if answer == b"" and time.monotonic() - begun < 0.1 else b"X")
        try:
            answer = writer.recv(1000)
        except TimeoutError:
            pass
    assert answer.startswith(b"HTTP/1.1 408 ") and 1 < time.monotonic() - begun < 6, answer


@test(modes=ALONE)
def a_head_of_ten_megabytes_is_refused_and_a_full_disk_loses_lines_alone(world):
    server = http(world, "--access-log", "/dev/full")
    assert raw(world, PORT, b"GET /hello HTTP/1.0\r\n\r\n") == [200]
    before = resident(server)
    for head, status in (
        (b"GET /" + b"a" * 10_000_000, b"414"),
        (b"GET / HTTP/1.1\r\n" + b"X-Y: abcdefgh\r\n" * 700_000, b"431"),
    ):
        sock = world.connect(PORT)
        answer = b""
        try:
            sock.sendall(head)
        except (ConnectionResetError, BrokenPipeError):
            pass
        try:
            answer = sock.recv(1000)
        except ConnectionResetError:
            pass
        # A client that sends for longer than the server reads is reset, and may not see the answer.
        assert answer == b"" or answer.startswith(b"HTTP/1.1 " + status), answer[:50]
        sock.close()
    assert resident(server) - before < 4_000_000
    for _ in range(20):
        assert raw(world, PORT, b"GET /hello HTTP/1.0\r\n\r\n") == [200]
    server.stop()
    assert "lines of the access log were lost" in server.errors(), server.tail()


@test(modes=ALONE, timeout=60)
def servers_that_are_killed_leave_nothing_behind(world):
    big = b"GET /big.bin HTTP/1.1\r\n" + HOST + b"\r\n"
    root = files(world)
    for count in (0, 30):
        server = serve(world, "http", root, "--port", PORT)
        held = [world.connect(PORT) for _ in range(count)]
        for number, sock in enumerate(held):
            # Idle after an answer, in the midst of a head, and of a long file.
            sock.sendall((REQUEST, REQUEST[:20], big)[number % 3])
            if number % 3 != 1:
                assert sock.recv(100).startswith(b"HTTP/1.1 200"), number
        server.signal(signal.SIGKILL)
        server.wait(10)
        for sock in held:
            sock.settimeout(15)
            try:
                while sock.recv(1 << 20):
                    pass
            except ConnectionResetError:
                pass
            sock.close()
        until(lambda: not list(world.run_dir.rglob("control")), 15, "its keeper has left too")

"""Stack sockets beside kernel descriptors, and listeners that are on both sides."""

import socket
import time

from harness import test
from harness.capture import Capture
from harness.http import get
from harness.nginx import Nginx

KINDS = ("timerfd", "signalfd", "eventfd", "pipe", "unix", "loopback", "nested")


@test
def one_epoll_set_holds_stack_sockets_and_kernel_descriptors(world):
    server = world.stack(*world.program("mixed.py"), 7500)
    world.wait_port(7500, process=server)
    with world.connect(7500) as sock:
        lines = sock.makefile("rw")
        for _ in range(5):
            for kind in KINDS:
                before = time.monotonic()
                lines.write(kind + "\n")
                lines.flush()
                assert lines.readline() == kind + "\n"
                assert time.monotonic() - before < 1.0, kind


@test
def a_wildcard_listener_serves_the_stack_and_loopback(world):
    server = world.stack(*world.program("threaded.py"), "server", 7000)
    world.wait_port(7000, process=server)
    for _ in range(20):
        for sock in (world.connect(7000), world.connect_beside(7000)):
            with sock:
                sock.sendall(b"hello")
                assert sock.recv(100) == b"hello"


@test
def a_dual_stack_listener_serves_the_stack(world):
    server = world.stack(
        "/usr/bin/python3", "-m", "http.server", 8000, "--bind", "::", cwd=world.folder
    )
    (world.folder / "x.txt").write_text("x")
    world.wait_port(8000, process=server)
    for sock in (world.connect(8000), world.connect_beside(8000)):
        with sock:
            sock.sendall(b"GET /x.txt HTTP/1.0\r\n\r\n")
            text = b""
            while chunk := sock.recv(4096):
                text += chunk
            assert text.endswith(b"x")


@test
def a_listener_on_loopback_stays_in_the_kernel(world):
    server = world.stack(
        "/usr/bin/python3", "-m", "http.server", 8000, "--bind", "127.0.0.1", cwd=world.folder
    )
    end = time.monotonic() + 10
    while True:
        try:
            world.connect_beside(8000).close()
            break
        except ConnectionRefusedError:
            assert server.is_running() and time.monotonic() < end, server.tail()
            time.sleep(0.05)
    try:
        world.connect(8000).close()
        raise AssertionError("the stack answers on a port that only loopback has")
    except ConnectionRefusedError:
        pass


@test
def a_closed_port_refuses_at_once(world):
    server = world.stack(*world.program("threaded.py"), "server", 7000)
    world.wait_port(7000, process=server)
    for port in (1, 7001, 65535):
        before = time.monotonic()
        try:
            world.connect(port).close()
            raise AssertionError(f"port {port} accepts")
        except ConnectionRefusedError:
            assert time.monotonic() - before < 0.5


@test(modes=("inprocess", "instance"))
def ping_is_answered(world):
    server = world.stack(*world.program("threaded.py"), "server", 7000)
    world.wait_port(7000, process=server)
    text = world.peer("ping", "-c", 5, "-i", 0.2, "-W", 1, world.address)
    assert text.wait(10) == 0, text.tail()
    large = world.peer("ping", "-c", 2, "-i", 0.2, "-W", 1, "-s", 1400, world.address)
    assert large.wait(10) == 0, large.tail()


@test
def a_thousand_connections_at_once(world):
    server = world.stack(*world.program("asyncio_echo.py"), "server", "0.0.0.0", 7000)
    world.wait_port(7000, process=server)
    socks = [world.connect(7000) for _ in range(1000)]
    for number, sock in enumerate(socks):
        sock.sendall(f"{number:8}".encode())
    for number, sock in enumerate(socks):
        data = b""
        while len(data) < 8:
            chunk = sock.recv(8)
            assert chunk
            data += chunk
        assert data == f"{number:8}".encode()
    for sock in socks:
        sock.close()
    with socket.socket():
        pass
    with world.connect(7000) as sock:
        sock.sendall(b"after")
        assert sock.recv(10) == b"after"


@test(modes=("inprocess", "instance"))
def a_kernel_that_forwards_does_not_return_the_stacks_frames(world):
    """The kernel also sees every frame; it must neither forward nor answer one of the stack's."""
    world.stack_ns.sysctl("net.ipv4.ip_forward", 1)
    world.stack_ns.ip("addr", "add", "10.77.0.9/24", "dev", "eth1")
    Nginx(world)
    with Capture(world, "-Q", "in", "ip") as capture:
        for _ in range(20):
            assert get(world, 8080)[0] == 200
    assert len(capture.segments) >= 40
    strangers = [segment for segment in capture.segments if not segment.is_from(world.address)]
    assert not strangers, [f"{segment.source} > {segment.target}" for segment in strangers[:5]]
    assert "ICMP" not in capture.process.output(), capture.process.output()[-500:]


@test(modes=("inprocess", "instance"))
def the_kernels_own_address_on_the_interface_keeps_working(world):
    """Without takeover, as ssh to the machine must keep working."""
    world.stack_ns.ip("addr", "add", "10.77.0.9/24", "dev", "eth1")
    world.beside(*world.program("threaded.py"), "server", 7000)
    Nginx(world)
    world.wait_port(7000, address="10.77.0.9")
    for _ in range(10):
        with world.connect(7000, address="10.77.0.9") as sock:
            sock.sendall(b"hello")
            assert sock.recv(10) == b"hello"
        assert get(world, 8080)[0] == 200

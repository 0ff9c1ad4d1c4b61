"""IPv6 in both placements: servers that a kernel client reaches, clients that reach the kernel."""

import hashlib
import socket

from harness import test
from harness.nginx import Nginx
from harness.process import until


def dual(world):
    """The veth pair with both families, before anything is started."""
    world.use_ipv6()
    return world


def get(world, url):
    client = world.peer("curl", "-g", "-sS", "--max-time", 20, url)
    client.finish()
    return client.output()


@test
def nginx_serves_over_ipv6(world):
    dual(world)
    nginx = Nginx(world, listen="[::]:8080", more="listen 8080;")
    address = f"http://[{world.STACK6}]:8080"
    assert get(world, f"{address}/hello") == "hello from nginx\n"
    assert get(world, nginx.url()) == "hello from nginx\n"
    out = world.folder / "big.bin"
    world.peer("curl", "-g", "-sS", "--max-time", 20, "-o", out, f"{address}/big.bin").finish()
    assert out.read_bytes() == nginx.big
    lines = nginx.access_lines()
    assert any(line.startswith(world.PEER6 + " ") for line in lines), lines
    assert any(line.startswith(world.PEER + " ") for line in lines), lines
    assert nginx.alerts() == []


@test
def a_dual_stack_server_serves_both_families(world):
    dual(world)
    world.stack(*world.program("dual_echo.py"), 7000)
    world.wait_port(7000)
    for address, shown in [(world.STACK, f"::ffff:{world.PEER}"), (world.STACK6, world.PEER6)]:
        with world.connect(7000, address=address) as client:
            client.sendall(b"who\n")
            assert client.makefile().readline().strip() == shown


@test
def curl_6_reaches_the_kernel(world):
    dual(world)
    folder = world.folder / "peer-files"
    folder.mkdir()
    data = hashlib.shake_256(b"six").digest(1_500_000)
    (folder / "six.bin").write_bytes(data)
    world.peer("/usr/bin/python3", "-m", "http.server", 8000, "--bind", world.PEER6, cwd=folder)
    world.wait_port(8000, address=world.PEER6)
    out = world.folder / "got.bin"
    world.stack("curl", "-6", "-g", "-sS", "--max-time", 20, "-o", out, f"http://[{world.PEER6}]:8000/six.bin").finish()
    assert out.read_bytes() == data


@test
def datagrams_go_both_ways_over_ipv6(world):
    dual(world)
    server = world.stack(*world.program("dual_udp.py"), 7001)
    until(lambda: "ready" in server.output(), 10, "the server is ready")
    for family, address in [(socket.AF_INET6, world.STACK6), (socket.AF_INET, world.STACK)]:
        with world.at_peer(), socket.socket(family, socket.SOCK_DGRAM) as client:
            client.settimeout(1)
            for attempt in range(10):
                client.sendto(b"over", (address, 7001))
                try:
                    assert client.recv(100) == b"over"
                    break
                except TimeoutError:
                    assert attempt < 9, f"no answer from {address}"


@test
def loopback_stays_with_the_kernel(world):
    dual(world)
    world.stack(*world.program("dual_echo.py"), 7000)
    world.wait_port(7000)
    with world.stack_ns.inside(), socket.create_connection(("::1", 7000), timeout=5) as client:
        client.sendall(b"who\n")
        assert client.makefile().readline().strip() == "::1"

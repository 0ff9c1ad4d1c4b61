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
    world.stack(
        "curl",
        "-6",
        "-g",
        "-sS",
        "--max-time",
        20,
        "-o",
        out,
        f"http://[{world.PEER6}]:8000/six.bin",
    ).finish()
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


LINK_LOCAL_CALLS = """\
tcp connect no scope: EINVAL
tcp connect lo: ENETUNREACH
tcp connect eth1: None
  from: own on eth1
  to: peer on eth1
  exchange: hello
tcp bind no scope: EINVAL
tcp bind lo: EADDRNOTAVAIL
tcp bind eth1: None
  name: own on eth1
  connect no scope: None
  to: peer on eth1
  exchange: hello
udp connect no scope: EINVAL
udp connect lo: ENETUNREACH
udp connect eth1: None
  from: own on eth1
  to: peer on eth1
  exchange: hello
udp bind no scope: EINVAL
udp bind lo: EADDRNOTAVAIL
udp bind eth1: None
  name: own on eth1
  connect no scope: None
  to: peer on eth1
  exchange: hello
udp sendto lo: ENETUNREACH
udp sendto eth1: 5
  from: peer on eth1
udp sendto no scope: 5
  from: peer on eth1
listening
accepted: peer on eth1
  name: own on eth1
"""


@test
def link_local_addresses_are_the_interfaces(world):
    own, peer = "fe80::77:2", "fe80::77:1"
    # No other link-local address that the kernel could choose.
    world.stack_ns.sysctl("net.ipv6.conf.eth1.addr_gen_mode", 1)
    dual(world)
    world.peer_ns.ip("addr", "add", f"{peer}/64", "dev", "eth1", "nodad")
    if world.mode == "kernel":
        world.stack_ns.ip("addr", "add", f"{own}/64", "dev", "eth1", "nodad")
    elif world.mode == "instance":
        world.instance = world.start_instance("t", "--ip", f"{own}/64")
    options = ["--ip", f"{own}/64"] if world.mode == "inprocess" else []
    world.peer(*world.program("echo_both.py"), 7000, 7001)
    world.wait_port(7000, address=world.PEER6)
    program = world.stack(
        *world.program("link_local.py"), own, peer, 7000, 7001, 7002, options=options
    )
    until(
        lambda: "listening" in program.output() or not program.is_running(),
        20,
        "the program listens",
    )
    with world.peer_ns.inside():
        client = socket.create_connection((f"{own}%eth1", 7002), timeout=10)
    with client:
        client.sendall(b"over")
        assert client.recv(100) == b"over"
    program.finish()
    assert program.output() == LINK_LOCAL_CALLS, program.tail()

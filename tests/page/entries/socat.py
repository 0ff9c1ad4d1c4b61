"""socat in each of its modes."""

import os
import socket
import sys
from dataclasses import dataclass

from harness.process import until
from page import Outcome, entry
from page import tools

SIZE = 1_000_000
# The port of the server of echoes at the peer, and of a proxy before it.
BEHIND, PROXY = 7100, 7104
# Two of socat that both wait to write TLS to each other do so forever, on any stack; and one waits
# forever to write to its own PIPE when that is full.
TLS_PIECE = 20_000
RELAY = tools.PEER_SERVER.with_name("relay.py")


@dataclass(frozen=True)
class Mode:
    """Addresses of socat on the stack; `peer`: those of another at the peer, and `beside`: beside
    the stack, on the kernel. `at`: where the client at the peer finds what echoes."""

    name: str
    stack: tuple
    at: tuple
    peer: tuple = ()
    beside: tuple = ()


def listen(port, kind="TCP-LISTEN", more=""):
    return f"{kind}:{port},fork,reuseaddr{more}"


def modes(world):
    us, them, echo = world.address, world.peer_address, f"{world.peer_address}:{BEHIND}"
    tls = f",verify=0,cert={tools.certificate(world)[0]}"
    path = world.folder / "socat"
    return (
        Mode("SYSTEM", (listen(7001), "SYSTEM:cat"), (us, 7001)),
        Mode(
            "OPENSSL-LISTEN",
            (listen(7002, "OPENSSL-LISTEN", tls), "PIPE"),
            (them, 7102),
            peer=(listen(7102), f"OPENSSL:{us}:7002,verify=0"),
        ),
        Mode(
            "OPENSSL",
            (listen(7003), f"OPENSSL:{them}:7103,verify=0"),
            (us, 7003),
            peer=(listen(7103, "OPENSSL-LISTEN", tls), "PIPE"),
        ),
        Mode("PROXY", (listen(7004), f"PROXY:{them}:{echo},proxyport={PROXY}"), (us, 7004)),
        Mode("SOCKS4", (listen(7005), f"SOCKS4:{them}:{echo},socksport={PROXY}"), (us, 7005)),
        Mode("SOCKS4A", (listen(7006), f"SOCKS4A:{them}:{echo},socksport={PROXY}"), (us, 7006)),
        Mode(
            "TCP6",
            (listen(7007, "TCP6-LISTEN"), f"TCP6:[{world.PEER6}]:7107"),
            (world.STACK6, 7007),
            peer=(listen(7107, "TCP6-LISTEN"), "EXEC:cat"),
        ),
        Mode("UNIX-LISTEN to TCP", (f"UNIX-LISTEN:{path}-1,fork", f"TCP:{echo}"), (f"{path}-1",)),
        Mode(
            "TCP-LISTEN to UNIX",
            (listen(7009), f"UNIX-CONNECT:{path}-2"),
            (us, 7009),
            beside=(f"UNIX-LISTEN:{path}-2,fork", "EXEC:cat"),
        ),
    )


def connected(world, at):
    """A connection from the peer, once somebody listens."""

    def attempt():
        try:
            if len(at) == 2:
                return world.connect(at[1], 10, at[0])
            sock = socket.socket(socket.AF_UNIX)
            sock.settimeout(10)
            sock.connect(at[0])
            return sock
        except OSError:
            return None

    return until(attempt, 20, f"{at} accepts connections")


def start(world, mode):
    """Starts the mode's processes, those that others connect to first."""
    for begin, addresses in ((world.peer, mode.peer), (world.beside, mode.beside)):
        if addresses:
            begin("socat", *addresses)
    world.stack("socat", *mode.stack)


def is_echoed(world, mode):
    """Twice, so that a child has been there before."""
    piece = TLS_PIECE if "OPENSSL" in mode.name else SIZE
    for _ in range(2):
        data = os.urandom(SIZE)
        with connected(world, mode.at) as sock:
            try:
                for at in range(0, SIZE, piece):
                    tools.echo(sock, data[at : at + piece])
            except (AssertionError, OSError) as error:
                raise AssertionError(f"{mode.name}: {error}") from None


def echoes_datagrams(world, port, count=10):
    with world.at_peer(), socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as sock:
        sock.settimeout(1)
        sock.connect((world.STACK6, port))
        for _ in range(count):
            data = os.urandom(1000)
            until(lambda: came_back(sock, data), 10, "UDP6: a datagram comes back")


def came_back(sock, data):
    try:
        sock.send(data)
        return sock.recv(65535)[: len(data)] == data
    except OSError:
        return False


def is_client(world):
    """With its standard streams as the other address."""
    path, into = tools.blob(world, "sent", SIZE), world.folder / "into"
    command = f"exec socat -t 10 - TCP:{world.peer_address}:{BEHIND} <{path} >{into}"
    world.stack("sh", "-c", command).finish(20)
    assert into.read_bytes() == path.read_bytes(), "as a client: bytes differ"


@entry("socat in nine more modes, UDP6, as a client", packages="socat openssl", timeout=150)
def socat_modes(world):
    world.use_ipv6()
    world.peer("socat", listen(BEHIND), "EXEC:cat")
    proxy = world.peer(sys.executable, "-u", RELAY, world.peer_address, PROXY)
    until(lambda: "ready" in proxy.output(), 10, "the proxy is ready")
    table = modes(world)
    for mode in table:
        start(world, mode)
    world.stack("socat", "-T", "1", listen(7010, "UDP6-LISTEN"), "PIPE")
    for mode in table:
        is_echoed(world, mode)
    echoes_datagrams(world, 7010)
    is_client(world)
    rate = tools.echoed(world, 7003, TLS_PIECE).rate
    return Outcome("1 MB echoed twice in each, 10 datagrams", rate, "echoes/s by OPENSSL")


@entry("socat fork, EXEC cat", packages="socat")
def socat_exec(world):
    server = world.stack("socat", "TCP-LISTEN:7000,fork,reuseaddr", "EXEC:cat")
    world.wait_port(7000, process=server)
    return tools.echoed(world, 7000)


@entry("socat fork as a proxy", packages="socat")
def socat_proxy(world):
    world.peer("socat", "TCP-LISTEN:7001,fork,reuseaddr", "PIPE")
    world.wait_port(7001, address=world.peer_address)
    server = world.stack(
        "socat", "TCP-LISTEN:7000,fork,reuseaddr", f"TCP:{world.peer_address}:7001"
    )
    world.wait_port(7000, process=server)
    return tools.echoed(world, 7000)


@entry("socat UDP echo", packages="socat")
def socat_udp(world):
    world.stack("socat", "-T", "1", "UDP-LISTEN:7000,fork,reuseaddr", "PIPE")
    for number in range(20):
        data = os.urandom(1000)
        # The child answers a datagram that was sent again together with the first.
        answer = tools.ask_udp(world, world.address, 7000, data, 1, 8)
        assert answer[: len(data)] == data
    return Outcome("20 datagrams, a child each")

"""An instance is killed and restarted while its programs run: none hangs, and listeners listen
again."""

import contextlib
import os
import signal
import socket
import time

from harness import test
from harness.process import until

READY = ("poll", "select", "epoll")
LOOKING = ("look", "glance")
ANSWER = b"hello"


def kill(world):
    os.kill(world.instance.pid, signal.SIGKILL)
    world.instance.wait()
    world.instance = None


def start(world):
    world.instance = world.start_instance("t")


def restart(world, away=0.7):
    """New clients meanwhile find no server."""
    kill(world)
    time.sleep(away)
    start(world)


def is_greeted(world, port):
    try:
        with world.connect(port, 1) as sock:
            return sock.recv(10) == ANSWER
    except OSError:
        return False


def is_answered(world, port):
    with world.at_peer(), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.settimeout(0.3)
        with contextlib.suppress(OSError):
            sock.sendto(ANSWER, (world.address, port))
            return sock.recv(10) == ANSWER
        return False


def serving(world, what, hows, is_served, **keywords):
    """Servers of that kind that have served once, by port."""
    servers = {}
    for at, how in enumerate(hows):
        servers[7980 + at] = (
            how,
            world.stack(*world.program("waits.py"), what, how, 7980 + at, **keywords),
        )
    for port in servers:
        until(lambda port=port: is_served(world, port), 10, "it is served")
    return servers


def serve_again(world, servers, is_served):
    for port, (how, server) in servers.items():
        until(lambda port=port: is_served(world, port), 5, f"{how}: it is served again")
        assert server.is_running(), server.tail()


@test(modes=("instance",), serial=True)
def a_waiting_listener_gets_connections_of_the_next_instance(world):
    servers = serving(world, "listener", ("accept", *READY), is_greeted)
    for _ in range(2):
        restart(world)
        serve_again(world, servers, is_greeted)


@test(modes=("instance",), serial=True)
def why_names_programs_that_wait_for_an_instance(world):
    server = world.stack(*world.program("waits.py"), "listener", "accept", 7980)
    until(lambda: is_greeted(world, 7980), 10, "it is served")

    def reason():
        answer = world.admin("why", server.pid)
        return answer.output() + answer.errors()

    kill(world)
    until(lambda: "its instance is away" in reason(), 5, "why tells of it")
    assert "0.0.0.0:7980" in reason(), reason()
    start(world)
    until(lambda: is_greeted(world, 7980), 5, "it is served again")
    assert "instance t" in reason() and "away" not in reason(), reason()


@test(modes=("instance",), serial=True)
def a_waiting_udp_socket_gets_datagrams_of_the_next_instance(world):
    servers = serving(world, "datagrams", ("recv", *READY, *LOOKING), is_answered)
    for _ in range(2):
        restart(world)
        serve_again(world, servers, is_answered)


@test(modes=("instance",), serial=True)
def waiting_for_an_instance_is_no_fallback_of_a_strict_program(world):
    for what, how, is_served in (
        ("listener", "accept", is_greeted),
        ("datagrams", "recv", is_answered),
    ):
        servers = serving(world, what, (how,), is_served, options=("--strict",))
        restart(world)
        serve_again(world, servers, is_served)
        for _, server in servers.values():
            assert "refused" not in server.errors(), server.errors()
            server.stop()


@test(modes=("instance",), serial=True)
def every_call_that_waits_on_a_connection_ends_with_its_instance(world):
    with world.at_peer():
        server = socket.create_server((world.peer_address, 7970))
    with server, contextlib.ExitStack() as held:
        clients = []
        for how in ("recv", "send", *READY):
            client = world.stack(
                *world.program("waits.py"), "connection", how, world.peer_address, 7970
            )
            held.enter_context(server.accept()[0])
            clients.append((how, client))
        # No host has that address: the attempt continues for three seconds.
        client = world.stack(
            *world.program("waits.py"), "connection", "connect", "10.77.0.99", 7970
        )
        clients.append(("connect", client))
        for _, client in clients:
            until(lambda client=client: "waits" in client.output(), 10, "it waits")
        time.sleep(0.3)
        killed = time.monotonic()
        kill(world)
        for how, client in clients:
            assert client.wait(5) == 0, f"{how}: {client.tail()}"
            assert client.output().split() == ["waits", "ECONNRESET"], f"{how}: {client.output()}"
        assert time.monotonic() - killed < 2


@test(modes=("instance",), serial=True)
def a_connected_datagram_socket_reports_the_end_and_continues(world):
    with world.at_peer():
        peer = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        peer.bind((world.peer_address, 7970))
    with peer:
        peer.settimeout(10)
        askers = [
            (how, world.stack(*world.program("waits.py"), "asker", how, world.peer_address, 7970))
            for how in ("recv", *READY, *LOOKING)
        ]
        for _ in askers:
            assert peer.recv(10) == b"asked"
        kill(world)
        for how, asker in askers:
            until(lambda asker=asker: "ENETDOWN" in asker.output(), 1, f"{how} hears of it")
        start(world)
        ended = set()
        while len(ended) < len(askers):
            data, address = peer.recvfrom(10)
            assert data == b"again"
            peer.sendto(b"answer", address)
            ended.add(address)
        for how, asker in askers:
            assert asker.wait(5) == 0, f"{how}: {asker.tail()}"
            assert asker.output().split()[-1] == "answer", f"{how}: {asker.output()}"


@test(modes=("instance",), serial=True)
def a_program_that_only_sends_datagrams_continues_with_the_next_instance(world):
    with world.at_peer():
        peer = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        peer.bind((world.peer_address, 7970))
    with peer:
        peer.settimeout(10)
        world.stack(*world.program("waits.py"), "teller", world.peer_address, 7970)
        assert peer.recv(10) == b"told"
        kill(world)
        peer.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while peer.recv(10):
                pass
        start(world)
        peer.settimeout(2)
        assert peer.recv(10) == b"told"


@test(modes=("instance",), serial=True)
def an_admitted_program_stays_admitted_without_root(world):
    """Started by root, with another user id afterwards, as nginx's workers."""
    world.skip_unless_others_may_run_it()
    nobody = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
    servers = {}
    for at, how in enumerate(("accept", "epoll", "child")):
        servers[7980 + at] = (
            how,
            world.stack(*nobody, *world.program("waits.py"), "listener", how, 7980 + at),
        )
    serve_again(world, servers, is_greeted)
    for _ in range(2):
        restart(world)
        serve_again(world, servers, is_greeted)


@test(modes=("instance",), serial=True)
def a_refused_program_stays_refused(world):
    world.skip_unless_others_may_run_it()
    words = [
        *world.stack_ns.prefix(),
        "setpriv",
        "--reuid=65534",
        "--regid=65534",
        "--clear-groups",
        str(world.slipstack),
        "run",
        *world.options(),
    ]
    refused = world.process(
        [*words, "--", *world.program("waits.py"), "listener", "accept", "7980"]
    )
    assert refused.wait(10) != 0, refused.tail()
    assert "may not use the instance" in refused.errors(), refused.errors()

"""`slipstack serve proxy` and `serve demo`: clients and backends are on the kernel."""

import http.client
import os
import select
import socket
import ssl
import struct
import threading
import time

from harness import test
from harness.process import until

from test_serve import exchange, serve
from test_serve_tls import certificate

ALONE = ("inprocess",)


def backends(world, *names):
    """Starts a backend for each name; returns the processes and the words that name them."""
    started, words = [], []
    for port, name in enumerate(names, 8001):
        started.append(world.peer(*world.program("backend.py"), world.PEER, port, name))
        words += ["--backend", f"{world.PEER}:{port}"]
        world.wait_port(port, address=world.PEER)
    return started, words


def ask(world, port, method="GET", path="/", body=None, chunked=False, client=None):
    client = client or connection(world, port)
    client.request(
        method,
        path,
        body,
        encode_chunked=chunked,
        headers={"Transfer-Encoding": "chunked"} if chunked else {},
    )
    answer = client.getresponse()
    return answer.status, answer.read()


def connection(world, port):
    client = http.client.HTTPConnection(world.address, port, timeout=10)
    client.sock = world.connect(port)
    return client


@test(modes=ALONE)
def requests_take_turns_over_connections_that_are_kept(world):
    started, words = backends(world, "one", "two")
    serve(world, "proxy", "--port", 80, "--check-every", 1, *words)
    served = [ask(world, 80)[1].split() for _ in range(20)]
    assert {name for name, *_ in served} == {b"one", b"two"}
    # wait_port and the checks made some of them; requests by one client at a time need one more.
    assert all(int(count) < 10 for _, count, _ in served), served
    assert {whom for *_, whom in served} == {world.PEER.encode()}
    client = connection(world, 80)
    data = os.urandom(300_000)
    for path in ("/", "/chunked"):
        assert ask(world, 80, "POST", path, data, client=client) == (200, data)
        pieces = (data[at : at + 7000] for at in range(0, len(data), 7000))
        assert ask(world, 80, "POST", path, pieces, chunked=True, client=client) == (200, data)
    started[0].stop()
    for _ in range(10):
        status, body = ask(world, 80)
        assert status == 200 and body.startswith(b"two"), (status, body)
    started[1].stop()
    assert ask(world, 80)[0] == 502
    started[0] = world.peer(*world.program("backend.py"), world.PEER, 8001, "again")
    until(lambda: ask(world, 80)[1].startswith(b"again"), 10, "a backend that is back is found")


@test(modes=ALONE)
def bytes_half_closes_and_resets_go_through(world):
    with world.at_peer():
        listener = socket.create_server((world.PEER, 9000))
    serve(
        world,
        "proxy",
        "--protocol",
        "tcp",
        "--port",
        7000,
        "--check-every",
        0,
        "--backend",
        f"{world.PEER}:9000",
    )

    def echo():
        backend, _ = listener.accept()
        while piece := backend.recv(1 << 16):
            backend.sendall(piece)
        backend.close()

    data = os.urandom(3_000_000)
    for sent in (data, b""):
        thread = threading.Thread(target=echo)
        thread.start()
        with world.connect(7000) as sock:
            assert exchange(sock, sent) == sent
        thread.join(10)
    for resets, other in (("client", "backend"), ("backend", "client")):
        ends = {"client": world.connect(7000)}
        ends["backend"] = listener.accept()[0]
        ends["client"].sendall(b"x")
        assert ends["backend"].recv(1) == b"x"
        ends[resets].setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        ends[resets].close()
        ends[other].settimeout(10)
        try:
            assert ends[other].recv(1) is None, "no end in order"
        except ConnectionResetError:
            pass
    listener.close()
    try:
        with world.connect(7000) as sock:
            assert sock.recv(1) is None, "no backend: a reset"
    except ConnectionResetError:
        pass


class Trust:
    """A certificate for a proxy, and clients that trust it."""

    def __init__(self, world):
        self.world = world
        pem, key = certificate(world.folder, "one")
        self.words = ["--tls-cert", pem, "--tls-key", key]
        self.context = ssl.create_default_context(cafile=pem)

    def connect(self, port):
        return self.context.wrap_socket(self.world.connect(port), server_hostname="one.example")


@test(modes=ALONE)
def requests_that_come_by_tls_go_to_backends_without_it(world):
    _, words = backends(world, "one")
    trust = Trust(world)
    serve(world, "proxy", "--port", 8443, *trust.words, *words)
    client = http.client.HTTPConnection(world.address, 8443, timeout=10)
    client.sock = trust.connect(8443)
    data = os.urandom(300_000)
    for path in ("/", "/chunked"):
        assert ask(world, 8443, path="/by", client=client) == (200, b"https")
        assert ask(world, 8443, "POST", path, data, client=client) == (200, data)
        pieces = (data[at : at + 7000] for at in range(0, len(data), 7000))
        assert ask(world, 8443, "POST", path, pieces, chunked=True, client=client) == (200, data)
    with world.connect(8443) as sock:
        sock.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert sock.recv(100).startswith(b"HTTP/1.1 400 ")
    client.close()


def through_one_thread(sock, data, limit_s=20):
    """Writes `data` and reads as many bytes, in turns: threads must not share a TLS connection."""
    sock.setblocking(False)
    sent, got, end = 0, b"", time.monotonic() + limit_s
    while len(got) < len(data):
        assert time.monotonic() < end, (sent, len(got))
        progress = False
        try:
            if sent < len(data):
                sent += sock.send(data[sent : sent + (1 << 14)])
                progress = True
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            pass
        try:
            piece = sock.recv(1 << 16)
            assert piece, (sent, len(got))
            got, progress = got + piece, True
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            pass
        if not progress:
            select.select([sock], [sock] if sent < len(data) else [], [], limit_s)
    sock.settimeout(limit_s)
    return got


@test(modes=ALONE)
def bytes_and_ends_of_tls_go_through_both_ways(world):
    with world.at_peer():
        listener = socket.create_server((world.PEER, 9000))
    trust = Trust(world)
    words = ["--protocol", "tcp", "--check-every", 0, "--backend", f"{world.PEER}:9000"]
    serve(world, "proxy", "--port", 7443, *trust.words, *words)
    listener.settimeout(20)

    def greet_and_echo():
        backend, _ = listener.accept()
        with backend:
            backend.sendall(b"hello")
            while piece := backend.recv(1 << 16):
                backend.sendall(piece)

    echo = threading.Thread(target=greet_and_echo)
    echo.start()
    data = os.urandom(3_000_000)
    with trust.connect(7443) as sock:
        assert sock.recv(5) == b"hello"
        got = through_one_thread(sock, data)
        assert got == data
        with sock.unwrap() as plain:
            assert plain.recv(1) == b"", "after the notice comes the end"
    echo.join(10)
    assert not echo.is_alive(), "the backend has heard of the client's end"
    listener.close()


@test(modes=ALONE)
def the_demo_counts_requests_each_second_and_passes_them_on(world):
    _, words = backends(world, "one")
    log = world.folder / "demo.log"
    demo = serve(world, "demo", "-a", f"{world.STACK}:80", "-k", "-v", "-o", log)
    client = connection(world, 80)
    for _ in range(30):
        assert ask(world, 80, client=client)[0] == 200

    def counted():
        lines = log.read_text().splitlines() if log.exists() else []
        assert all(line.startswith("Request/s ") and " worker 0 " in line for line in lines)
        return sum(int(line.split()[1]) for line in lines) == 30

    until(counted, 10, "30 requests are counted")
    demo.stop()
    serve(world, "demo", "--port", 80, "-x", words[1])
    assert ask(world, 80)[1].startswith(b"one")

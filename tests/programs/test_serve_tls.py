"""`slipstack serve http` with TLS against curl, openssl, wrk and h2load, on the stack and on the
kernel's sockets."""

import hashlib
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import time

from harness import Skip, test
from harness.process import until

from test_serve import ALONE, serve

PORT = 8443


def certificate(folder, name, key=("ec", "-pkeyopt", "ec_paramgen_curve:P-256"), serial=1):
    """A self-signed certificate for NAME.example and *.NAME.example; its file and its key's."""
    pem, secret = folder / f"{name}.pem", folder / f"{name}.key"
    words = [
        "openssl",
        "req",
        "-x509",
        "-nodes",
        "-newkey",
        *key,
        "-keyout",
        secret,
        "-out",
        pem,
        "-days",
        "2",
        "-set_serial",
        str(serial),
    ]
    words += [
        "-subj",
        f"/CN={name}",
        "-addext",
        f"subjectAltName=DNS:{name}.example,DNS:*.{name}.example",
    ]
    subprocess.run(words, check=True, capture_output=True)
    return pem, secret


class Site:
    """Files served over TLS, by names that curl resolves to the server."""

    def __init__(self, world, *more, kernel=False, names=("one",)):
        self.world = world
        self.root = world.folder / "www"
        self.root.mkdir()
        (self.root / "hello").write_text("hello over tls\n")
        self.big = hashlib.shake_256(b"tls").digest(5_000_000)
        (self.root / "big.bin").write_bytes(self.big)
        words = []
        for name in names:
            key = ("rsa:2048",) if name == "rsa" else ("ec", "-pkeyopt", "ec_paramgen_curve:P-256")
            pem, secret = certificate(world.folder, name, key)
            words += ["--tls-cert", pem, "--tls-key", secret]
        self.address = world.PEER if kernel else world.STACK
        if kernel:
            self.server = world.peer(
                world.slipstack,
                "serve",
                "http",
                self.root,
                "--kernel",
                "--port",
                PORT,
                *words,
                *more,
            )
            until(
                lambda: "is served" in self.server.output() or not self.server.is_running(),
                15,
                "it listens",
            )
        else:
            self.server = serve(world, "http", self.root, "--port", PORT, *words, *more)

    def run(self, *words, **more):
        return subprocess.run(
            self.world.peer_ns.prefix() + [str(word) for word in words],
            capture_output=True,
            timeout=60,
            **more,
        )

    def curl(self, path, *more, name="one", host=None):
        host = host or f"{name}.example"
        words = ["curl", "-sS", "-m", "20", "--cacert", self.world.folder / f"{name}.pem"]
        words += [
            "--resolve",
            f"{host}:{PORT}:{self.address}",
            *more,
            f"https://{host}:{PORT}{path}",
        ]
        done = self.run(*words)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def connect(self, seconds=10):
        return (
            self.world.connect(PORT, seconds, self.address)
            if self.address == self.world.STACK
            else self._beside(seconds)
        )

    def _beside(self, seconds):
        with self.world.peer_ns.inside():
            return socket.create_connection((self.address, PORT), timeout=seconds)

    def tls(self, version=None, session=None, name="one"):
        context = ssl.create_default_context(cafile=self.world.folder / f"{name}.pem")
        if version:
            context.minimum_version = context.maximum_version = version
        return context.wrap_socket(
            self.connect(), server_hostname=f"{name}.example", session=session
        )


def ask(sock, path="/hello", close=False):
    kind = "close" if close else "keep-alive"
    sock.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: {kind}\r\n\r\n".encode())
    head = b""
    while b"\r\n\r\n" not in head:
        piece = sock.recv(65536)
        assert piece, head
        head += piece
    head, _, body = head.partition(b"\r\n\r\n")
    length = int(re.search(rb"Content-Length: (\d+)", head)[1])
    while len(body) < length:
        piece = sock.recv(65536)
        assert piece, len(body)
        body += piece
    return body


def serves_clients(site):
    assert site.curl("/hello") == b"hello over tls\n"
    for version in ("1.2", "1.3"):
        data = site.curl("/big.bin", f"--tlsv{version}", "--tls-max", version)
        assert data == site.big, f"TLS {version}: {len(data)} bytes"
        assert (
            site.curl("/big.bin", "-r", "4000000-4999999", f"--tlsv{version}", "--tls-max", version)
            == site.big[4_000_000:]
        )
    for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
        with site.tls(version) as sock:
            for _ in range(20):
                assert ask(sock) == b"hello over tls\n"
            sock.sendall(b"GET /hello HTTP/1.1\r\nHost: x\r\n\r\n" * 50)
            answers = b""
            while answers.count(b"hello over tls\n") < 50:
                piece = sock.recv(65536)
                assert piece
                answers += piece
            assert ask(sock, close=True) == b"hello over tls\n"
            assert sock.recv(1) == b"", "close_notify before the end"


@test(modes=ALONE)
def curl_and_openssl_get_files_over_tls(world):
    serves_clients(Site(world))


@test(modes=ALONE)
def files_are_served_over_tls_on_the_kernels_sockets(world):
    serves_clients(Site(world, kernel=True))


@test(modes=ALONE)
def sessions_go_on_with_tickets_and_the_protocol_is_agreed_upon(world):
    site = Site(world)
    for version, told in (("-tls1_2", b"Reused, TLSv1.2"), ("-tls1_3", b"Reused, TLSv1.3")):
        words = [
            "openssl",
            "s_client",
            version,
            "-connect",
            f"{site.address}:{PORT}",
            "-servername",
            "one.example",
        ]
        words += ["-CAfile", world.folder / "one.pem", "-alpn", "h2,http/1.1"]
        ticket = world.folder / f"session{version}"
        request = b"GET /hello HTTP/1.0\r\n\r\n"
        first = site.run(*words, "-sess_out", ticket, "-ign_eof", input=request).stdout
        assert (
            b"Verify return code: 0 (ok)" in first
            and b"ALPN protocol: http/1.1" in first
            and b"hello over tls" in first
        ), first
        second = site.run(*words, "-sess_in", ticket, "-ign_eof", input=request).stdout
        assert told in second and b"hello over tls" in second, second
    # A protocol that is not spoken is refused with the alert for it.
    words = ["openssl", "s_client", "-connect", f"{site.address}:{PORT}", "-alpn", "h3"]
    assert b"no application protocol" in site.run(*words, input=b"").stderr


@test(modes=ALONE)
def certificates_are_chosen_by_name_and_read_again_at_sighup(world):
    site = Site(world, names=("one", "rsa"))
    assert site.curl("/hello", name="rsa", host="www.rsa.example") == b"hello over tls\n"
    assert site.curl("/hello") == b"hello over tls\n"

    def serial(name):
        words = [
            "openssl",
            "s_client",
            "-connect",
            f"{site.address}:{PORT}",
            "-servername",
            f"{name}.example",
        ]
        return re.search(
            rb"serial=(\w+)",
            site.run(
                "sh",
                "-c",
                " ".join(words) + " </dev/null 2>/dev/null | openssl x509 -noout -serial",
            ).stdout,
        )[1]

    assert serial("other") == b"01"
    with site.tls() as kept:
        assert ask(kept) == b"hello over tls\n"
        certificate(world.folder, "one", serial=0x4711)
        site.server.signal(signal.SIGHUP)
        until(
            lambda: "have been reloaded" in site.server.errors(), 10, "the certificates are read"
        )
        assert serial("one") == b"4711"
        assert ask(kept) == b"hello over tls\n", "a connection goes on"
        (world.folder / "one.key").write_text("no key")
        site.server.signal(signal.SIGHUP)
        until(lambda: "the old certificates stay" in site.server.errors(), 10, "the error is said")
        assert "one.key" in site.server.errors()
        assert serial("one") == b"4711"
        site.server.signal(signal.SIGTERM)
        assert kept.recv(1) == b"", "close_notify at the end"
    assert site.server.wait(10) == 0


@test(modes=ALONE)
def clients_that_do_no_handshake_are_sent_away(world):
    site = Site(world, "--head-timeout", 1, "--idle", 30)

    def ends(sock, seconds=8):
        sock.settimeout(seconds)
        got = b""
        try:
            while piece := sock.recv(65536):
                got += piece
        except ConnectionResetError:
            pass
        sock.close()
        return got

    for data in (b"", b"\x16\x03\x01\x02\x00\x01", b"\x16\x03\x01\x00\x05\x01"):
        sock, begun = site.connect(), time.monotonic()
        sock.sendall(data)
        assert ends(sock) == b"" and 0.5 < time.monotonic() - begun < 6, data
    # A byte at a time does not prolong it.
    sock, begun = site.connect(), time.monotonic()
    try:
        for byte in b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(100):
            sock.sendall(bytes([byte]))
            time.sleep(0.1)
    except (ConnectionResetError, BrokenPipeError):
        pass
    assert time.monotonic() - begun < 6
    sock.close()
    sock = site.connect()
    sock.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    assert ends(sock).startswith(b"HTTP/1.1 400 "), "a request without TLS"
    for data in (
        b"\x16\x03\x01\xff\xff" + bytes(100),
        b"\x16\x03\x01\x00\x04\x07\x00\x00\x00",
        b"\x16\x03\x01\x00\x04\x01\x00\x00\x00",
    ):
        sock = site.connect()
        sock.sendall(data)
        got = ends(sock)
        assert got[:1] == b"\x15" and got[5:6] == b"\x02", f"a fatal alert to {data[:9]}: {got}"
    # Half a handshake, half a request, an end without close_notify.
    sock = site.connect()
    sock.sendall(b"\x16\x03\x01\x02\x00\x01")
    sock.shutdown(socket.SHUT_WR)
    assert ends(sock) == b""
    raw = site.tls()
    raw.sendall(b"GET /hel")
    socket.socket.shutdown(raw, socket.SHUT_WR)
    raw.settimeout(8)
    assert raw.recv(100) == b""
    raw.close()
    # The answer also reaches a client that has closed its side of TLS.
    sock = site.tls()
    sock.sendall(b"GET /big.bin HTTP/1.1\r\nHost: x\r\n\r\n")
    outgoing = sock
    outgoing.settimeout(10)
    assert site.curl("/hello") == b"hello over tls\n"
    sock.close()


@test(modes=ALONE)
def requests_before_close_notify_are_answered(world):
    site = Site(world)
    context = ssl.create_default_context(cafile=world.folder / "one.pem")
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = context.wrap_bio(incoming, outgoing, server_hostname="one.example")
    sock = site.connect()

    def step(what):
        while True:
            try:
                return what()
            except ssl.SSLWantReadError:
                sock.sendall(outgoing.read())
                incoming.write(sock.recv(65536))

    step(tls.do_handshake)
    request = b"GET /%s HTTP/1.1\r\nHost: x\r\n\r\n"
    tls.write(request % b"hello" + request % b"big.bin" + request % b"hello")
    try:
        tls.unwrap()
    except ssl.SSLWantReadError:
        pass
    sock.sendall(outgoing.read())
    sock.shutdown(socket.SHUT_WR)
    # OpenSSL decrypts nothing after its close_notify: what came is counted.
    total = 0
    while piece := sock.recv(65536):
        total += len(piece)
    assert total > len(site.big) + 2 * 15, total
    sock.close()


@test(modes=ALONE)
def wrk_and_h2load_find_no_failure(world):
    site = Site(world)
    url = f"https://{site.address}:{PORT}/hello"
    wrk = site.run("wrk", "-t1", "-c20", "-d1", url).stdout.decode()
    assert (
        "Socket errors" not in wrk
        and "Non-2xx" not in wrk
        and re.search(r"[1-9]\d+ requests in", wrk)
    ), wrk
    if not shutil.which("h2load"):
        raise Skip("h2load (nghttp2-client) is missing")
    h2load = site.run("h2load", "--h1", "-n", "3000", "-c", "30", url).stdout.decode()
    assert "3000 succeeded, 0 failed, 0 errored" in h2load, h2load


@test(modes=ALONE)
def keys_that_cannot_be_used_are_refused_with_a_sentence(world):
    root = world.folder / "www"
    root.mkdir()
    one, one_key = certificate(world.folder, "one")
    other, other_key = certificate(world.folder, "other")
    (world.folder / "empty").write_text("")

    def refusal(*words):
        words = [world.slipstack, "serve", "http", root, "--kernel", "--port", PORT, *words]
        done = world.peer(*words)
        assert done.wait(10) == 1, done.tail()
        return done.errors()

    assert "each --tls-cert needs its --tls-key" in refusal("--tls-cert", one)
    assert "it is not the key of" in refusal("--tls-cert", one, "--tls-key", other_key)
    assert "no certificate" in refusal("--tls-cert", world.folder / "empty", "--tls-key", one_key)
    assert "missing.pem" in refusal(
        "--tls-cert", world.folder / "missing.pem", "--tls-key", one_key
    )
    assert "empty" in refusal("--tls-cert", one, "--tls-key", world.folder / "empty")

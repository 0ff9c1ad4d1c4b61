"""Clients at the peer, on the kernel, and servers there for programs that are clients."""

import contextlib
import hashlib
import os
import pwd
import re
import shutil
import socket
import sys
import time
from pathlib import Path

from harness.process import until

from .catalogue import Outcome

PEER_SERVER = Path(__file__).with_name("digest_server.py")
SECONDS = 2
# Called with the world around each measurement of a rate; a profile may take the place.
observed = contextlib.nullcontext


def sbin(name):
    """A program's path; servers are in /usr/sbin."""
    return shutil.which(name, path="/usr/sbin:/usr/bin:/usr/local/bin") or name


def blob(world, name="big.bin", size=3_000_000):
    """A file of random bytes in the run's folder, readable by all."""
    path = world.folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(os.urandom(size))
    path.chmod(0o644)
    return path


def digest(data):
    return hashlib.sha256(data).hexdigest()


def fetch(world, url, path, *options):
    """Fetches with curl at the peer and compares with the file."""
    into = world.folder / "fetched"
    world.peer("curl", "-sS", "-k", "--fail", "--max-time", 20, "-o", into, *options, url).finish(
        25
    )
    assert digest(into.read_bytes()) == digest(path.read_bytes()), "fetched bytes differ"


def upload(world, url, path, *options):
    """Sends a file with curl; the answer must be its digest."""
    words = [
        "curl",
        "-sS",
        "-k",
        "--fail",
        "--max-time",
        20,
        "--data-binary",
        f"@{path}",
        "-H",
        "Expect:",
        *options,
        url,
    ]
    answer = world.peer(*words).finish(25).strip()
    assert answer == digest(path.read_bytes()), f"uploaded bytes differ: {answer[:80]!r}"


def post_echo(world, url, path):
    """Sends a file with curl; the answer must be the file."""
    into = world.folder / "echoed"
    words = ["curl", "-sS", "-k", "--fail", "--max-time", 20, "-H", "Expect:", "-o", into]
    world.peer(*words, "--data-binary", f"@{path}", url).finish(25)
    assert digest(into.read_bytes()) == digest(path.read_bytes()), "echoed bytes differ"


def store(world, url, path, *options):
    """Puts a file with curl and fetches it again."""
    words = ["curl", "-sS", "-k", "--fail", "--max-time", 20, "-H", "Expect:", "-T", path]
    world.peer(*words, *options, url).finish(25)
    fetch(world, url, path, *options)


def measure(world, *words, seconds):
    """Runs the client that measures a rate, for at most `seconds`; returns its output."""
    with observed(world):
        return world.peer(*words).finish(seconds)


def wrk(world, url, connections=16, *options):
    words = ["wrk", "-t", 1, "-c", connections, "-d", SECONDS, *options, url]
    text = measure(world, *words, seconds=SECONDS + 15)
    assert "Non-2xx" not in text and "Socket errors" not in text, text[-300:]
    return float(re.search(r"Requests/sec:\s+([\d.]+)", text)[1])


def proxied(world, port, url, connections=8):
    """Requests a second through a proxy of HTTP, by kept connections."""
    script = world.folder / "proxied.lua"
    host = url.split("/")[2]
    script.write_text(f'wrk.path = "{url}"\nwrk.headers["Host"] = "{host}"\n')
    return wrk(world, f"http://{world.address}:{port}/", connections, "-s", script)


def ab(world, url, connections=16, *options):
    """Requests a second with a connection for each."""
    words = ["ab", "-q", "-n", 5000, "-c", connections, *options, url]
    text = measure(world, *words, seconds=60)
    assert re.search(r"Failed requests:\s+0", text), text
    return float(re.search(r"Requests per second:\s+([\d.]+)", text)[1])


def calls(world, call, seconds=None):
    """Calls a second, one after the other: of a client in this process, or of one that each call
    starts."""
    seconds = seconds or SECONDS
    with observed(world):
        count, start = 0, time.monotonic()
        while time.monotonic() < start + seconds:
            call()
            count += 1
        return count / (time.monotonic() - start)


def echoed(world, port, size=3_000_000, **keywords):
    """Bytes come back from a server of echoes; and the rate of 64."""
    data = os.urandom(size)
    with world.connect(port, **keywords) as sock:
        echo(sock, data)

        def call():
            sock.sendall(b"x" * 64)
            receive(sock, 64)

        return Outcome(f"{size / 1e6} MB echoed", calls(world, call), "echoes/s")


def digest_server(world, port, start=None):
    """A server on the kernel at the peer: GET returns 64 bytes or a file, POST the digest of its
    body."""
    started = (start or world.peer)(sys.executable, "-u", PEER_SERVER, port, world.folder)
    until(lambda: "ready" in started.output(), 10, "the server at the peer is ready")
    return f"http://{world.peer_address}:{port}"


def receive(sock, length):
    data = bytearray()
    while len(data) < length:
        part = sock.recv(min(262_144, length - len(data)))
        assert part, f"the connection ended after {len(data)} of {length} bytes"
        data += part
    return bytes(data)


def echo(sock, data):
    """Sends everything while the echo is read, and compares."""
    import threading

    sender = threading.Thread(target=sock.sendall, args=(data,))
    sender.start()
    back = receive(sock, len(data))
    sender.join()
    assert digest(back) == digest(data), "echoed bytes differ"


def ask_udp(world, address, port, data, seconds=2, tries=3):
    """One datagram and its answer."""
    with world.at_peer(), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.settimeout(seconds)
        sock.connect((address, port))
        for _ in range(tries):
            sock.send(data)
            try:
                return sock.recv(65_535)
            except (socket.timeout, ConnectionRefusedError):
                time.sleep(0.1)
    raise AssertionError(f"no answer from UDP port {port}")


def certificate(world):
    """A key and its self-signed certificate in one PEM file."""
    pem = world.folder / "tls.pem"
    key, cert = world.folder / "key.pem", world.folder / "cert.pem"
    words = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-days",
        2,
        "-subj",
        "/CN=page.test",
    ]
    world.beside(*words, "-keyout", key, "-out", cert).finish(30)
    pem.write_bytes(key.read_bytes() + cert.read_bytes())
    for path in (pem, key, cert):
        path.chmod(0o644)
    return pem, key, cert


def owner(user):
    """Numbers of a user and its group, for `os.chown`."""
    found = pwd.getpwnam(user)
    return found.pw_uid, found.pw_gid

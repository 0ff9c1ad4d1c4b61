"""QUIC by the Rust library quinn, which `tests/page/quic` wraps."""

from harness.process import until
from harness.world import ROOT, TARGET
from page import Outcome, entry

PORT = 4433
BYTES, REBINDS, SECONDS = 3_000_000, 6, 2
# rustls takes no certificate of an authority for a server's.
CERTIFICATE = """
[req]
distinguished_name = name
x509_extensions = server
prompt = no
[name]
CN = page.test
[server]
subjectAltName = DNS:page.test
basicConstraints = critical, CA:FALSE
"""
PROGRAM = TARGET / "quic" / "release" / "slipstack-quic-echo"
LOCK = ROOT / "tests/page/quic/Cargo.lock"
# For an entry: how the version of the library is asked for.
OWN = (["grep", "-A1", 'name = "quinn"', str(LOCK)], PROGRAM)
ECHOED = f"3 MB echoed while the client's port changes {REBINDS} times"


def certificate(world):
    settings, key, cert = (world.folder / name for name in ("tls.cnf", "key.pem", "cert.pem"))
    settings.write_text(CERTIFICATE)
    words = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", 2]
    world.beside(*words, "-config", settings, "-keyout", key, "-out", cert).finish(30)
    return cert, key


def serve(world, start, address):
    """Starts a server; returns the end of its clients' command line."""
    cert, key = certificate(world)
    server = start(PROGRAM, "server", f"{address}:{PORT}", cert, key)
    until(lambda: "ready" in server.output(), 10, "the server is ready")
    return [f"{address}:{PORT}", cert]


def echoed(start, to):
    said = start(PROGRAM, "client", *to, BYTES, REBINDS).finish(25)
    assert said == f"{BYTES} bytes echoed, {REBINDS} times from another port\n", said
    rate = float(start(PROGRAM, "rate", *to, SECONDS).finish(20))
    return Outcome(ECHOED, rate, "echoes/s")


@entry("quinn, server, two threads", packages="openssl", own=OWN)
def quinn(world):
    return echoed(world.peer, serve(world, world.stack, world.address))


@entry("quinn, client, two threads", packages="openssl", own=OWN)
def quinn_client(world):
    return echoed(world.stack, serve(world, world.peer, world.peer_address))

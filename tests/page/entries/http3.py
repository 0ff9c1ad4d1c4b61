"""HTTP/3, by programs of Debian 13 in a chroot."""

from pathlib import Path

import page
from harness.process import until
from page import Outcome, absent, entry, tools, trixie

PORT = 8443
SCRIPTS = Path(page.__file__).parent
CONF = """
user www-data;
worker_processes {workers};
daemon off;
{main}
pid {folder}/nginx.pid;
error_log {folder}/error.log info;
events {{ worker_connections 1024; }}
http {{
    access_log off;
    keepalive_requests 100000;
    client_body_temp_path {folder}/tmp-body;
    proxy_temp_path {folder}/tmp-proxy;
    fastcgi_temp_path {folder}/tmp-fastcgi;
    uwsgi_temp_path {folder}/tmp-uwsgi;
    scgi_temp_path {folder}/tmp-scgi;
    ssl_certificate {cert};
    ssl_certificate_key {key};
    server {{
        listen {address}:{port} quic reuseport;
        listen {address}:{port} ssl;
        root {folder}/www;
        location = /worker {{ return 200 "$pid $http3\\n"; }}
        location /up {{ client_max_body_size 9m; proxy_pass {upstream}; }}
    }}
}}
"""
HAPROXY = """
global
    nbthread 2
    limited-quic
defaults
    mode http
    timeout client 20s
    timeout server 20s
    timeout connect 5s
frontend f
    bind quic4@{address}:{port} ssl crt {pem} alpn h3
    bind {address}:{port} ssl crt {pem}
    default_backend b
backend b
    server s {upstream}
"""
ASKED = 12
REQUESTS = 1000
SAID = "%{http_code} %{time_total}\\n"
# Each with a change of the client's port, which moves it to the other of two workers with a
# probability of a half if nothing names its own.
FETCHES = 4
BOTH = "3 MB down, 3 MB up"
MOVED = "3 MB down while the client migrates"
CHANGES = f"3 MB down {FETCHES} times while the client's port changes"


def inside(start, world, *words):
    """Starts a program of the chroot with `start`, one of the world's methods."""
    before, words = trixie.entering(world, SCRIPTS), trixie.inside(*words)
    return start(*words, before=before) if start == world.stack else start(*before, *words)


def curl(world, *words, start=None, address=None):
    options = ["-sS", "-k", "--fail", "--http3-only", "--max-time", 20, *words[:-1]]
    url = f"https://{address or world.address}:{PORT}{words[-1]}"
    return inside(start or world.peer, world, "curl", *options, url)


def python(script):
    return ["python3", "-u", SCRIPTS / script]


class Nginx:
    def __init__(self, world, start, address, workers=2, main=""):
        upstream = tools.digest_server(world, 9000)
        _, key, cert = tools.certificate(world)
        self.folder = world.folder / "nginx"
        self.path = tools.blob(world, "nginx/www/big.bin")
        self.folder.chmod(0o755)
        conf = self.folder / "nginx.conf"
        values = dict(workers=workers, main=main, folder=self.folder, key=key, cert=cert)
        conf.write_text(CONF.format(**values, address=address, port=PORT, upstream=upstream))
        self.process = inside(start, world, "nginx", "-c", conf, "-p", self.folder)


def is_same(path, into):
    assert tools.digest(into.read_bytes()) == tools.digest(path.read_bytes()), "bytes differ"


def is_fetched(world, path, **keywords):
    into = world.folder / "fetched"
    curl(world, "-o", into, f"/{path.name}", **keywords).finish(25)
    is_same(path, into)


def is_sent(world, path, **keywords):
    answer = curl(world, "--data-binary", f"@{path}", "/up", **keywords).finish(25)
    assert answer.strip() == tools.digest(path.read_bytes()), "sent bytes differ"


def is_fetched_while_rebinding(world, path):
    """With a client whose port changes."""
    words = [*python("h3_get.py"), world.address, PORT, f"/{path.name}"]
    for _ in range(FETCHES):
        got = inside(world.peer, world, *words).finish(25)
        assert got.strip() == tools.digest(path.read_bytes()), "bytes differ"


def migrates(world, start, address, path):
    """With ngtcp2's client, which moves to another port and tells the server so."""
    into = world.folder / "into"
    into.mkdir()
    words = ["gtlsclient", "-q", "--exit-on-all-streams-close", "--download", into]
    words += ["--change-local-addr", "20ms", address, PORT]
    inside(start, world, *words, f"https://{address}:{PORT}/{path.name}").finish(25)
    is_same(path, into / path.name)


def rate(world, path):
    """Requests a second of curl, one after the other over one connection."""
    asked = curl(world, "-o", "/dev/null", "-w", SAID, f"{path}?[1-{REQUESTS}]")
    said = asked.finish(40).splitlines()
    assert [line.split()[0] for line in said] == ["200"] * REQUESTS, said[-1]
    return REQUESTS / sum(float(line.split()[1]) for line in said)


@entry("nginx, HTTP/3, two workers", packages="debootstrap", own=trixie.own("nginx"))
def nginx_http3(world):
    nginx = Nginx(world, world.stack, world.address)
    world.wait_port(PORT, process=nginx.process)
    is_fetched(world, nginx.path)
    is_sent(world, nginx.path)
    workers = set()
    for _ in range(ASKED):
        pid, protocol = curl(world, "/worker").finish(25).split()
        assert protocol == "h3", protocol
        workers.add(pid)
    until(lambda: len(workers) == 2, 0.1, "answers of both workers")
    return Outcome(f"{BOTH}, both workers", rate(world, "/worker"), "requests/s")


@entry("nginx, HTTP/3, a client behind a NAT", packages="debootstrap", own=trixie.own("nginx"))
def nginx_rebinding(world):
    nginx = Nginx(world, world.stack, world.address, workers=1)
    world.wait_port(PORT, process=nginx.process)
    is_fetched_while_rebinding(world, nginx.path)
    return Outcome(CHANGES)


@entry("nginx, HTTP/3, two workers, quic_bpf", packages="debootstrap", own=trixie.own("nginx"))
def nginx_bpf(world):
    nginx = Nginx(world, world.stack, world.address, main="quic_bpf on;")
    pid = nginx.folder / "nginx.pid"
    until(lambda: pid.exists() or not nginx.process.is_running(), 20, "nginx runs")
    assert nginx.process.is_running(), f"the server ended\n{nginx.process.tail()}"
    is_fetched_while_rebinding(world, nginx.path)
    return Outcome(CHANGES)


@entry("haproxy, HTTP/3, nbthread 2", packages="debootstrap", own=trixie.own("haproxy"))
def haproxy(world):
    upstream = tools.digest_server(world, 9000).removeprefix("http://")
    pem, _, _ = tools.certificate(world)
    path = tools.blob(world)
    conf = world.folder / "haproxy.cfg"
    conf.write_text(HAPROXY.format(address=world.address, port=PORT, pem=pem, upstream=upstream))
    server = inside(world.stack, world, "haproxy", "-f", conf)
    world.wait_port(PORT, process=server)
    is_fetched(world, path)
    is_sent(world, path)
    return Outcome(BOTH, rate(world, "/"), "requests/s")


@entry("aioquic, server", packages="debootstrap", own=trixie.version_of("python3-aioquic"))
def aioquic(world):
    path = tools.blob(world)
    _, key, cert = tools.certificate(world)
    words = [*python("h3_server.py"), PORT, cert, key, world.folder]
    server = inside(world.stack, world, *words)
    until(lambda: "ready" in server.output(), 20, "the server is ready")
    is_fetched(world, path)
    is_sent(world, path)
    is_fetched_while_rebinding(world, path)
    (world.folder / "small").write_bytes(b"x" * 64)
    return Outcome(f"{BOTH}; {CHANGES}", rate(world, "/small"), "requests/s")


@entry("curl, HTTP/3", packages="debootstrap", own=trixie.own("curl", "usr/bin"))
def curl_http3(world):
    nginx = Nginx(world, world.peer, world.peer_address)
    until(lambda: (nginx.folder / "nginx.pid").exists(), 10, "nginx runs at the peer")
    is_fetched(world, nginx.path, start=world.stack, address=world.peer_address)
    is_sent(world, nginx.path, start=world.stack, address=world.peer_address)
    return Outcome(BOTH)


def gtlsserver(world, start, address):
    path = tools.blob(world)
    _, key, cert = tools.certificate(world)
    words = ["gtlsserver", "-q", "-d", world.folder, address, PORT, key, cert]
    server = inside(start, world, *words)
    until(lambda: "root" in server.errors() + server.output(), 20, "the server is ready")
    return path


@entry("ngtcp2, server", packages="debootstrap", own=trixie.version_of("ngtcp2-server"))
def ngtcp2_server(world):
    path = gtlsserver(world, world.stack, world.address)
    migrates(world, world.peer, world.address, path)
    return Outcome(MOVED)


@entry("ngtcp2, client", packages="debootstrap", own=trixie.version_of("ngtcp2-client"))
def ngtcp2_client(world):
    path = gtlsserver(world, world.peer, world.peer_address)
    migrates(world, world.stack, world.peer_address, path)
    return Outcome(MOVED)


absent("h2load, HTTP/3", "Debian builds nghttp2-client without ngtcp2")

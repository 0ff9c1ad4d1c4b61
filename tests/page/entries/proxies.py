"""Proxies whose listeners are handed down, of several protocols, or with threads."""

import os
import shutil
import signal
import time

from harness.process import descendants, until
from page import Outcome, entry
from page import tools
from page.apache import HEAD

BOTH = "3 MB down, 3 MB up"
RECORDS = """CONFIG proxy.config.http.server_ports STRING 8080
CONFIG proxy.config.exec_thread.autoconfig INT 0
CONFIG proxy.config.exec_thread.limit INT 2
CONFIG proxy.config.accept_threads INT 1
CONFIG proxy.config.admin.user_id STRING #-1
CONFIG proxy.config.http.cache.http INT 0
CONFIG proxy.config.url_remap.remap_required INT 1
CONFIG proxy.config.http.insert_response_via_str INT 0
CONFIG proxy.config.http.keep_alive_post_out INT 1
"""


@entry("Traffic Server, two threads", packages="trafficserver wrk curl", timeout=120)
def traffic_server(world):
    """Its manager binds the port and starts the server with it."""
    base = tools.digest_server(world, 9000)
    root = world.folder / "ts"
    conf = run_root(root)
    (conf / "records.config").write_text(RECORDS)
    (conf / "remap.config").write_text(f"map / {base}/\n")
    for path in [root, *root.rglob("*")]:
        path.chmod(0o777 if path.is_dir() else 0o755 if "bin" in path.parts else 0o644)
    server = world.stack("traffic_manager", f"--run-root={root}/runroot.yaml", "--nosyslog")
    world.wait_port(8080, 40, process=server)
    path = tools.blob(world)
    url = f"http://{world.address}:8080"
    until(lambda: answers(world, url), 20, "the server answers")
    for _ in range(4):
        tools.fetch(world, f"{url}/big.bin", path)
        tools.upload(world, f"{url}/up", path)
    return Outcome(f"{BOTH}, four times", tools.wrk(world, f"{url}/", 8), "requests/s")


def run_root(root):
    """The folders of a Traffic Server of its own; returns that of its configuration."""
    shutil.copytree("/etc/trafficserver", root / "etc")
    lines = ["prefix: /usr", "exec_prefix: /usr", "bindir: /usr/bin", f"sysconfdir: {root}/etc"]
    for name in ("datadir", "runtimedir", "logdir", "cachedir", "localstatedir"):
        (root / name).mkdir()
        lines.append(f"{name}: {root}/{name}")
    (root / "runroot.yaml").write_text("\n".join(lines) + "\n")
    return root / "etc"


def answers(world, url):
    words = ["curl", "-sS", "--fail", "--max-time", 5, "-o", "/dev/null", url]
    return world.peer(*words).wait(10) == 0


APACHE = HEAD + """\
LogLevel info
KeepAlive On
MaxKeepAliveRequests 0
StartServers 2
ThreadsPerChild 8
MaxRequestWorkers 32
{more}
"""


def apache(world, names, more):
    modules = "\n".join(
        f"LoadModule {name}_module /usr/lib/apache2/modules/mod_{name}.so" for name in names
    )
    conf = world.folder / "apache.conf"
    conf.write_text(APACHE.format(folder=world.folder, modules=modules, more=more))
    world.folder.chmod(0o755)
    server = world.stack(tools.sbin("apache2"), "-D", "FOREGROUND", "-f", conf)
    world.wait_port(8080, process=server)
    return server


def reloaded(world, server, url, path):
    """A graceful restart while a client asks; the old workers end."""
    before = set(descendants(server.pid))
    load = world.peer("ab", "-q", "-n", 400, "-c", 4, f"{url}/")
    time.sleep(0.1)
    server.signal(signal.SIGUSR1)
    tools.fetch(world, f"{url}/big.bin", path)
    text = load.finish(30)
    assert "Failed requests:        0" in text, text
    until(lambda: not before & set(descendants(server.pid)), 20, "the old workers end")
    tools.upload(world, f"{url}/up", path)


@entry("Apache, worker, as a proxy, reloads", packages="apache2-bin apache2-utils wrk curl")
def apache_worker(world):
    base = tools.digest_server(world, 9000)
    names = ["mpm_worker", "authz_core", "proxy", "proxy_http"]
    server = apache(world, names, f"ProxyPass / {base}/\n")
    path = tools.blob(world)
    url = f"http://{world.address}:8080"
    for _ in range(4):
        tools.fetch(world, f"{url}/big.bin", path)
        tools.upload(world, f"{url}/up", path)
    for _ in range(2):
        reloaded(world, server, url, path)
    return Outcome(f"{BOTH}, and under reloads", tools.wrk(world, f"{url}/", 8), "requests/s")


WSGI = """import hashlib
def application(environ, start):
    body = b"x" * 64
    if environ["REQUEST_METHOD"] == "POST":
        length = int(environ["CONTENT_LENGTH"])
        body = hashlib.sha256(environ["wsgi.input"].read(length)).hexdigest().encode()
    if environ["PATH_INFO"] == "/big.bin":
        body = open("{path}", "rb").read()
    start("200 OK", [("Content-Length", str(len(body)))])
    return [body]
"""


@entry("Apache with mod_wsgi", packages="libapache2-mod-wsgi-py3 apache2-bin curl")
def mod_wsgi(world):
    path = tools.blob(world)
    script = world.folder / "page.wsgi"
    script.write_text(WSGI.format(path=path))
    script.chmod(0o644)
    more = (
        f"WSGIDaemonProcess page processes=2 threads=4\nWSGIProcessGroup page\n"
        f"WSGISocketPrefix {world.folder}/wsgi\nWSGIScriptAlias / {script}\n"
        f"<Directory {world.folder}>\nRequire all granted\n</Directory>\n"
    )
    server = apache(world, ["mpm_event", "authz_core", "wsgi"], more)
    url = f"http://{world.address}:8080"
    for _ in range(3):
        tools.fetch(world, f"{url}/big.bin", path)
        tools.upload(world, f"{url}/up", path)
        before = set(descendants(server.pid))
        server.signal(signal.SIGUSR1)
        # Meanwhile it answers with 503 on the kernel too.
        until(lambda: not before & set(descendants(server.pid)), 20, "the old workers end")
    tools.fetch(world, f"{url}/big.bin", path)
    return Outcome(f"{BOTH}, three times, and reloads")


STREAM = """load_module /usr/lib/nginx/modules/ngx_stream_module.so;
user www-data;
worker_processes 2;
daemon off;
pid {folder}/pid;
error_log {folder}/error.log info;
events {{}}
stream {{
    upstream web {{ server {peer}:9000; }}
    server {{ listen {address}:8081; proxy_pass web; }}
    server {{ listen {address}:8082 reuseport proxy_protocol; proxy_pass web; }}
    server {{ listen {address}:8083; proxy_protocol on; proxy_pass {address}:8082; }}
    server {{ listen {address}:7000 udp; proxy_responses 1; proxy_pass {peer}:7000; }}
    server {{ listen {address}:7001 udp reuseport; proxy_timeout 2s; proxy_pass {peer}:7000; }}
}}
"""


@entry("nginx stream: TCP, UDP, PROXY", packages="libnginx-mod-stream nginx-light socat wrk curl")
def nginx_stream(world):
    tools.digest_server(world, 9000)
    world.peer("socat", "UDP4-RECVFROM:7000,fork", "EXEC:cat")
    conf = world.folder / "nginx.conf"
    conf.write_text(
        STREAM.format(folder=world.folder, address=world.address, peer=world.peer_address)
    )
    server = world.stack(tools.sbin("nginx"), "-c", conf)
    world.wait_port(8081, process=server)
    path = tools.blob(world)
    for turn in range(2):
        for port in (8081, 8083):
            url = f"http://{world.address}:{port}"
            tools.fetch(world, f"{url}/big.bin", path)
            tools.upload(world, f"{url}/up", path)
        for port in (7000, 7001):
            for size in (10, 1000, 1400):
                data = os.urandom(size)
                got = tools.ask_udp(world, world.address, port, data)
                assert got == data, f"port {port}: {len(got)} of {size} bytes"
        if turn == 0:
            before = set(descendants(server.pid))
            server.signal(signal.SIGHUP)
            until(lambda: not before & set(descendants(server.pid)), 20, "the old workers end")
    rate = tools.wrk(world, f"http://{world.address}:8081/", 8)
    return Outcome(f"{BOTH}, four times, 12 datagrams, a reload", rate, "requests/s")

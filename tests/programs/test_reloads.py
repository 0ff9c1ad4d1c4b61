"""Restarts and reloads of servers with active clients: no request fails, and none waits."""

import contextlib
import os
import signal
import socket
import subprocess
import threading
import time

from harness import Skip, test
from harness.http import get
from harness.nginx import Nginx
from harness.process import children, until
from harness.visitors import Visitors

PORT = 7480


class Asking:
    """A client that sends requests in a loop; failures are kept."""

    def __init__(self, world):
        self.world, self.done, self.failures = world, 0, []
        self.is_over = threading.Event()
        self.thread = threading.Thread(target=self._loop)

    def _loop(self):
        while not self.is_over.is_set():
            try:
                assert get(self.world, PORT)[0] == 200
                self.done += 1
            except (OSError, AssertionError) as error:
                self.failures.append(repr(error))

    def wait_for(self, count):
        before = self.done
        until(lambda: self.done >= before + count or self.failures, 10, f"{count} answers")

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.is_over.set()
        self.thread.join(20)


def found(path):
    if not os.path.exists(path):
        raise Skip(f"{path} is not installed")
    return path


def reloads(world, reload, workers):
    with Asking(world) as asking:
        for _ in range(3):
            asking.wait_for(10)
            before = set(workers())
            reload()
            until(
                lambda: workers() and before.isdisjoint(workers()), 15, "the old workers are gone"
            )
        asking.wait_for(10)
    assert not asking.failures, (asking.done, asking.failures[:3])


@test
def nginx_reloads_leave_no_client_waiting(world):
    nginx = Nginx(world, workers=4, listen=str(PORT))
    reloads_of_nginx(world, nginx)


@test
def reuseport_listeners_of_nginx_leave_no_client_waiting(world):
    nginx = Nginx(world, workers=4, listen=f"{PORT} reuseport")
    reloads_of_nginx(world, nginx)


def reloads_of_nginx(world, nginx):
    with Visitors(world, PORT) as visitors:
        for _ in range(6):
            nginx.reload()
            time.sleep(0.05)
    visitors.assert_untroubled()


@test
def binary_upgrades_of_nginx_leave_no_client_waiting(world):
    nginx = Nginx(world, listen=str(PORT), daemon=True)
    assert nginx.process.wait(5) == 0, nginx.process.tail()
    with Visitors(world, PORT, closing=16) as visitors:
        for _ in range(2):
            nginx.upgrade()
    visitors.assert_untroubled()


APP = """
def app(environ, start):
    start("200 OK", [("Content-Length", "3")])
    return [b"ok\\n"]
"""


@test
def gunicorn_takes_sighup(world):
    (world.folder / "app.py").write_text(APP)
    started = world.stack(
        found("/usr/bin/gunicorn"),
        "-w",
        2,
        "-b",
        f"{world.address}:{PORT}",
        "--chdir",
        world.folder,
        "app:app",
        "--graceful-timeout",
        5,
    )
    world.wait_port(PORT, process=started)
    reloads(world, lambda: os.kill(started.pid, signal.SIGHUP), lambda: children(started.pid))


APACHE = """
ServerRoot {folder}
PidFile {folder}/pid
ErrorLog {folder}/error.log
ServerName test
Mutex posixsem
LoadModule mpm_{mpm}_module /usr/lib/apache2/modules/mod_mpm_{mpm}.so
LoadModule authz_core_module /usr/lib/apache2/modules/mod_authz_core.so
Listen {address}:{port}
DocumentRoot {folder}/www
User www-data
Group www-data
StartServers 2
MaxRequestWorkers {workers}
{more}
"""


@test
def apache_prefork_restarts_gracefully(world):
    apache(world, "prefork", 4, "MinSpareServers 2\nMaxSpareServers 3")


@test
def apache_event_restarts_gracefully(world):
    apache(world, "event", 50, "ThreadsPerChild 25")


def apache(world, mpm, workers, more):
    binary = found("/usr/sbin/apache2")
    folder = world.folder / "apache"
    (folder / "www").mkdir(parents=True)
    (folder / "www" / "hello").write_text("hello\\n")
    for path in (world.folder, folder, folder / "www"):
        path.chmod(0o755)
    conf = folder / "conf"
    conf.write_text(
        APACHE.format(
            folder=folder, mpm=mpm, address=world.address, port=PORT, workers=workers, more=more
        )
    )
    started = world.stack(binary, "-f", conf, "-D", "FOREGROUND")
    world.wait_port(PORT, process=started)
    master = lambda: int((folder / "pid").read_text())
    until(lambda: (folder / "pid").exists(), 5, "its pid")
    reloads(world, lambda: os.kill(master(), signal.SIGUSR1), lambda: children(master()))


HAPROXY = """
global
    stats socket {folder}/admin expose-fd listeners level admin
    nbthread 1
defaults
    mode http
    timeout client 10s
    timeout connect 10s
    timeout server 10s
frontend main
    bind {address}:{port}
    http-request return status 200 content-type text/plain string ok
"""


@test
def haproxy_hands_its_listeners_to_its_successor(world):
    binary = found("/usr/sbin/haproxy")
    conf = world.folder / "haproxy.cfg"
    conf.write_text(HAPROXY.format(folder=world.folder, address=world.address, port=PORT))
    running = [world.stack(binary, "-db", "-f", conf)]
    world.wait_port(PORT, process=running[0])

    def reload():
        old = running[-1]
        running.append(
            world.stack(binary, "-db", "-f", conf, "-x", world.folder / "admin", "-sf", old.pid)
        )

    def workers():
        return [process.pid for process in running if process.is_running()]

    with Asking(world) as asking:
        for _ in range(3):
            asking.wait_for(10)
            before = running[-1]
            reload()
            until(lambda: not before.is_running(), 15, "the old process is gone")
        asking.wait_for(10)
    assert not asking.failures, (asking.done, asking.failures[:3])


NODE = """
const cluster = require("cluster"), http = require("http");
const [address, port] = process.argv.slice(2);
if (cluster.isPrimary) {
    cluster.fork(); cluster.fork();
    process.on("SIGUSR2", () => {
        for (const old of Object.values(cluster.workers)) {
            cluster.fork().on("listening", () => old.disconnect());
        }
    });
} else {
    http.createServer((request, answer) => answer.end("ok\\n")).listen(port, address);
}
"""


@test
def the_workers_of_a_node_cluster_are_replaced_one_by_one(world):
    script = world.folder / "cluster.js"
    script.write_text(NODE)
    started = world.stack(found("/usr/bin/node"), script, world.address, PORT)
    world.wait_port(PORT, process=started)
    until(lambda: len(children(started.pid)) == 2, 10, "both workers")
    reloads(world, lambda: os.kill(started.pid, signal.SIGUSR2), lambda: children(started.pid))


LAUNCHER = """
import os, socket, sys
server = socket.create_server((sys.argv[1], int(sys.argv[2])), backlog=64)
if server.fileno() != 3:
    os.dup2(server.fileno(), 3)
os.set_inheritable(3, True)
for _ in range(3):
    if os.fork() == 0:
        os.environ.update(LISTEN_FDS="1", LISTEN_PID=str(os.getpid()))
        os.execvp(sys.executable, [sys.executable, "-c", sys.argv[3]])
    os.wait()
"""

ACTIVATED = """
import os, socket
assert os.environ["LISTEN_FDS"] == "1" and os.environ["LISTEN_PID"] == str(os.getpid())
with socket.socket(fileno=3) as server:
    for _ in range(20):
        sock, _ = server.accept()
        with sock:
            sock.recv(1000)
            sock.sendall(b"HTTP/1.0 200 OK\\r\\nContent-Length: 3\\r\\n\\r\\nok\\n")
"""


@test
def a_service_that_is_activated_by_its_socket_may_end_and_come_again(world):
    started = world.stack("/usr/bin/python3", "-c", LAUNCHER, world.address, PORT, ACTIVATED)
    until(lambda: is_answered(world), 10, "the first service")
    for _ in range(59):
        assert get(world, PORT)[0] == 200
    started.finish(10)


@test
def connections_of_a_process_that_leaves_go_to_one_that_sleeps(world):
    count = 40
    started = world.stack(*world.program("sleeper.py"), world.address, PORT, count)
    until(lambda: "sleeping" in started.output(), 10, "both processes listen")
    with contextlib.ExitStack() as stack:
        socks = [stack.enter_context(world.connect(PORT, 10)) for _ in range(count)]
        for number, sock in enumerate(socks):
            sock.sendall(b"%d" % number)
        for number, sock in enumerate(socks):
            assert sock.recv(100) == b"%d" % number
    started.finish(10)


@test
def connections_that_both_workers_leave_wait_for_the_next_worker(world):
    count = 8
    words = [*world.program("leavers.py"), world.address, PORT, count]
    started = world.stack(*words, stdin=subprocess.PIPE)
    until(lambda: "listening" in started.output(), 10, "both workers listen")
    with contextlib.ExitStack() as stack:
        socks = [stack.enter_context(world.connect(PORT, 5)) for _ in range(count)]
        for number, sock in enumerate(socks):
            sock.sendall(b"%d" % number)
        # Nothing has been accepted for a while: one listener yields to the other.
        time.sleep(0.03)
        started.child.stdin.close()
        for number, sock in enumerate(socks):
            assert sock.recv(100) == b"%d" % number
    started.finish(10)


ACTIVATE = "/usr/bin/systemd-socket-activate"


def first_connection(world):
    """A look whether the port is open would be the connection that starts the service."""
    made = []

    def is_made():
        with contextlib.suppress(ConnectionRefusedError, socket.timeout):
            made.append(world.connect(PORT, 3))
        return made

    until(is_made, 10, "a connection")
    return made[0]


def activated(world, *options):
    """A service that was started for its first connection, and has echoed all data of it."""
    listen = f"{world.address}:{PORT}"
    started = world.stack(found(ACTIVATE), "-l", listen, *options)
    with first_connection(world) as sock:
        sent = os.urandom(300_000)
        sender = threading.Thread(
            target=lambda: (sock.sendall(sent), sock.shutdown(socket.SHUT_WR))
        )
        sender.start()
        received = b"".join(iter(lambda: sock.recv(1 << 16), b""))
        sender.join()
    assert received == sent, (len(received), started.tail())
    return started


@test
def systemd_activates_a_service_by_its_first_connection(world):
    service = """
import os, socket
assert os.environ["LISTEN_FDS"] == "1" and os.environ["LISTEN_PID"] == str(os.getpid())
with socket.socket(fileno=3) as server:
    sock, _ = server.accept()
    sock.sendall(b"".join(iter(lambda: sock.recv(1 << 16), b"")))
    sock.close()
"""
    started = activated(world, "/usr/bin/python3", "-c", service)
    started.finish(10)


@test
def systemd_activates_a_service_for_each_connection(world):
    started = activated(world, "--accept", "--inetd", "/bin/cat")
    with world.connect(PORT) as sock:
        sock.sendall(b"again")
        sock.shutdown(socket.SHUT_WR)
        assert sock.makefile("rb").read() == b"again"
    started.stop()


def is_answered(world):
    try:
        return get(world, PORT)[0] == 200
    except ConnectionRefusedError:
        return False

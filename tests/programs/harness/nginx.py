"""nginx with a configuration in the test's folder."""

import os
import shutil
import signal
from pathlib import Path

from .process import children, until

# Absolute: a binary upgrade executes argv[0].
BINARY = shutil.which("nginx", path="/usr/sbin:/usr/bin") or "nginx"

CONF = """
{user}
worker_processes {workers};
{daemon}
pid {folder}/nginx.pid;
error_log {folder}/error.log info;
events {{ worker_connections 4096; {events} }}
http {{
    access_log {folder}/access.log;
    client_body_temp_path {folder}/tmp-body;
    proxy_temp_path {folder}/tmp-proxy;
    fastcgi_temp_path {folder}/tmp-fastcgi;
    uwsgi_temp_path {folder}/tmp-uwsgi;
    scgi_temp_path {folder}/tmp-scgi;
    sendfile on;
    tcp_nopush on;
    keepalive_timeout 65;
    keepalive_requests 1000000;
    server {{
        listen {listen};
        root {folder}/www;
        location = /hello {{ return 200 "hello from nginx\\n"; }}
        location = /worker {{ return 200 "$pid\\n"; }}
        {more}
    }}
}}
"""


class Nginx:
    def __init__(
        self,
        world,
        *,
        workers=1,
        listen="8080",
        events="",
        more="",
        user="user www-data;",
        options=(),
        daemon=False,
        inside=(),
    ):
        self.world = world
        self.folder = world.folder / "nginx"
        (self.folder / "www").mkdir(parents=True)
        self.port = int(listen.split()[0].rpartition(":")[2])
        self.big = os.urandom(3_000_000)
        (self.folder / "www" / "small.txt").write_text("x" * 64)
        (self.folder / "www" / "big.bin").write_bytes(self.big)
        self.conf = self.folder / "nginx.conf"
        self.conf.write_text(
            CONF.format(
                folder=self.folder,
                workers=workers,
                listen=listen,
                events=events,
                more=more,
                user=user,
                daemon="daemon on;" if daemon else "daemon off;",
            )
        )
        self.process = world.stack(
            *inside, BINARY, "-c", self.conf, "-p", self.folder, options=options
        )
        world.wait_port(self.port, process=None if daemon else self.process)
        if daemon:
            world.strays.append(lambda: pid_file(self.folder, "nginx.pid"))
        # The port is reached from the master's listen on, before there are workers.
        if "master_process off" in user:
            workers = 0
        until(lambda: len(self.workers()) >= workers, 5, "nginx has its workers")

    def url(self, path="/hello"):
        return f"http://{self.world.address}:{self.port}{path}"

    def master(self):
        # It listens before it writes its number.
        file = self.folder / "nginx.pid"
        until(lambda: file.exists() and file.read_text().strip(), 5, "nginx has written its number")
        return int(file.read_text())

    def workers(self):
        return children(self.master())

    def error_log(self):
        return (self.folder / "error.log").read_text()

    def access_lines(self):
        return (self.folder / "access.log").read_text().splitlines()

    def alerts(self):
        return [
            line
            for line in self.error_log().splitlines()
            if "[alert]" in line or "[emerg]" in line or "[crit]" in line
        ]

    def reload(self):
        """SIGHUP, and wait for the new workers."""
        before = set(self.workers())
        os.kill(self.master(), signal.SIGHUP)
        until(
            lambda: before.isdisjoint(self.workers()) and self.workers(),
            15,
            "the old workers are gone",
        )

    def upgrade(self):
        """A new nginx in the place of the old one: SIGUSR2, then SIGQUIT."""
        old = self.master()
        os.kill(old, signal.SIGUSR2)
        until(
            lambda: pid_file(self.folder, "nginx.pid") not in (0, old) and self.workers(),
            15,
            "a new master",
        )
        os.kill(old, signal.SIGQUIT)
        until(lambda: not os.path.exists(f"/proc/{old}"), 15, "the old master has ended")


def pid_file(folder, name):
    try:
        text = (Path(folder) / name).read_text().strip()
    except FileNotFoundError:
        # nginx renames it at a binary upgrade.
        text = ""
    return int(text) if text else 0

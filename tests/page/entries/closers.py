"""Daemons that close every descriptor number, of which there are few."""

import contextlib
import os
import signal
import socket
import sys
from pathlib import Path

from harness.process import until
from page import Outcome, entry
from page import tools

FEW = ("prlimit", "--nofile=1024:1024")
CLIENTS = 3


def words_of(pid):
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    return []


def end(world, word):
    """Ends the daemon, which has this word."""

    def found():
        return [pid for pid in world.stack_ns.pids() if str(word) in words_of(pid)]

    for pid in found():
        os.kill(pid, signal.SIGTERM)
    until(lambda: not found(), 5, "the daemon has ended")


def answers(world, word):
    """Clients that are there together, and one after another, of the daemon with this word."""
    socks = [world.connect(7000) for _ in range(CLIENTS)]
    for _ in range(3):
        for sock in socks:
            tools.echo(sock, os.urandom(100_000))
    for sock in socks:
        with sock:
            sock.shutdown(socket.SHUT_WR)
            assert sock.recv(1) == b""
    end(world, word)
    return Outcome(f"0.3 MB echoed by {CLIENTS} at once")


def daemon(world, *words):
    """Starts a program that goes on in the background."""
    started = world.stack(*words, before=FEW)
    until(lambda: not started.is_running(), 10, "the daemon is in the background")
    assert started.wait() == 0, started.tail()
    world.wait_port(7000)


@entry("start-stop-daemon -b: inetd, 1,024 files", packages="openbsd-inetd")
def background(world):
    conf = world.folder / "inetd.conf"
    conf.write_text(f"{world.address}:7000 stream tcp nowait root /bin/cat cat\n")
    pid = world.folder / "pid"
    words = ["start-stop-daemon", "--start", "--background", "--make-pidfile", "--pidfile", pid]
    daemon(world, *words, "--exec", tools.sbin("inetd"), "--", "-i", conf)
    return answers(world, conf)


@entry("xinetd, 1,024 files", packages="xinetd")
def xinetd(world):
    conf = world.folder / "xinetd.conf"
    conf.write_text(
        "service cat\n{\n  socket_type = stream\n  protocol = tcp\n  wait = no\n  port = 7000\n"
        f"  server = /bin/cat\n  bind = {world.address}\n  user = root\n  type = UNLISTED\n"
        "  disable = no\n}\n"
    )
    daemon(world, tools.sbin("xinetd"), "-f", conf, "-pidfile", world.folder / "pid")
    return answers(world, conf)


# Each has a client before it becomes a daemon with its listener alone.
PYTHON = """import socket, sys, threading, daemon
listener = socket.create_server((sys.argv[1], 7000))
def echo(sock):
    with sock:
        while data := sock.recv(65536):
            sock.sendall(data)
echo(listener.accept()[0])
with daemon.DaemonContext(files_preserve=[listener], working_directory=sys.argv[2]):
    while True:
        threading.Thread(target=echo, args=(listener.accept()[0],)).start()
"""

PERL = """use IO::Socket::INET; use Proc::Daemon; use strict;
my $listener = IO::Socket::INET->new(LocalAddr => $ARGV[0], LocalPort => 7000, Listen => 50,
    ReuseAddr => 1) or die $!;
sub echo {
    my ($sock, $data) = @_;
    while (sysread($sock, $data, 65536)) {
        for (my $done = 0; $done < length $data;) {
            $done += syswrite($sock, $data, 65536, $done) // die $!;
        }
    }
    close $sock;
}
echo(scalar $listener->accept);
Proc::Daemon::Init({ work_dir => $ARGV[1], dont_close_fd => [fileno $listener] }) and exit;
$SIG{CHLD} = 'IGNORE';
while (1) {
    my $sock = $listener->accept or next;
    if (!fork) { echo($sock); exit }
    close $sock;
}
"""


def becomes_daemon(world, program, *words):
    started = world.stack(*words, program, world.address, world.folder, before=FEW)
    world.wait_port(7000, process=started)
    until(lambda: not started.is_running(), 10, "the daemon is in the background")
    assert started.wait() == 0, started.tail()
    return answers(world, program)


@entry("python-daemon, threads, 1,024 files", packages="python3-daemon")
def python_daemon(world):
    program = world.folder / "echo.py"
    program.write_text(PYTHON)
    return becomes_daemon(world, program, sys.executable, "-u")


@entry("Proc::Daemon, children, 1,024 files", packages="libproc-daemon-perl")
def perl_daemon(world):
    program = world.folder / "echo.pl"
    program.write_text(PERL)
    return becomes_daemon(world, program, "perl")

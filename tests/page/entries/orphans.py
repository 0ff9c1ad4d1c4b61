"""Servers whose first process is killed (kill -9): the sessions of its children go on."""

import ftplib
import os
import signal
import socket
import subprocess
import time

from harness.process import until
from page import Outcome, entry
from page import tools
from page.ftp import vsftpd_conf
from page.ssh import sshd

SESSIONS = 3
# Before and after a connection has moved to the process that uses it.
WAITS = (0, 1)


def kill(server):
    server.signal(signal.SIGKILL)
    server.wait(5)


def lines_back(sock, count):
    for number in range(count):
        line = b"%d %s\n" % (number, b"x" * (number * 100))
        sock.sendall(line)
        assert tools.receive(sock, len(line)) == line


def echo_sessions(world, *words):
    """What `words` starts for each connection to port 7000 echoes."""
    for wait in WAITS:
        server = world.stack(*words)
        world.wait_port(7000, process=server)
        socks = [world.connect(7000) for _ in range(SESSIONS)]
        for sock in socks:
            lines_back(sock, 3)
        time.sleep(wait)
        kill(server)
        for sock in socks:
            with sock:
                lines_back(sock, 20)
                tools.echo(sock, os.urandom(300_000))
                sock.shutdown(socket.SHUT_WR)
                assert sock.recv(1) == b""
    return Outcome(f"0.3 MB echoed, {SESSIONS * len(WAITS)} times")


def inetd(world, service):
    conf = world.folder / "inetd.conf"
    conf.write_text(f"{world.address}:7000 stream tcp nowait root {service}\n")
    return echo_sessions(world, tools.sbin("inetd"), "-d", conf)


@entry("inetd is killed, cat goes on", packages="openbsd-inetd")
def inetd_cat(world):
    return inetd(world, "/bin/cat cat")


@entry("inetd is killed, sh and cat go on", packages="openbsd-inetd")
def inetd_shell(world):
    return inetd(world, "/bin/sh sh -c cat;true")


@entry("tcpserver is killed, cat goes on", packages="ucspi-tcp")
def tcpserver(world):
    return echo_sessions(world, "tcpserver", "-HR", "-l0", "0", "7000", "/bin/cat")


@entry("socat is killed, its EXEC goes on", packages="socat")
def socat(world):
    return echo_sessions(world, "socat", "TCP-LISTEN:7000,fork,reuseaddr", "EXEC:/bin/cat,nofork")


@entry("socat is killed, its proxies go on", packages="socat")
def socat_proxy(world):
    world.peer("socat", "TCP-LISTEN:9000,fork,reuseaddr", "EXEC:/bin/cat")
    to = f"TCP:{world.peer_address}:9000"
    return echo_sessions(world, "socat", "TCP-LISTEN:7000,fork,reuseaddr", to)


@entry("sshd is killed, its sessions go on", packages="openssh-server openssh-client", timeout=120)
def sshd_sessions(world):
    server, options = sshd(world, world.stack)
    loop = "while read line; do echo got $line; done"
    for wait in WAITS:
        if not server.is_running():
            conf = world.folder / "ssh" / "sshd_config"
            server = world.stack(tools.sbin("sshd"), "-D", "-e", "-f", conf)
        world.wait_port(2222, process=server)
        words = ["ssh", *options, "-p", 2222, f"root@{world.address}", loop]
        clients = [world.peer(*words, stdin=subprocess.PIPE) for _ in range(SESSIONS)]
        says(clients, b"one")
        time.sleep(wait)
        kill(server)
        says(clients, b"two")
        for client in clients:
            client.child.stdin.close()
            assert client.wait(10) == 0, client.tail()
    return Outcome(f"lines both ways, {SESSIONS * len(WAITS)} logins")


def says(clients, word):
    for client in clients:
        client.child.stdin.write(word + b"\n")
        client.child.stdin.flush()
    answer = f"got {word.decode()}"
    until(lambda: all(answer in client.output() for client in clients), 15, answer)


@entry("vsftpd is killed, its sessions go on", packages="vsftpd")
def vsftpd_sessions(world):
    conf = vsftpd_conf(world)
    path = tools.blob(world)
    for wait in WAITS:
        server = world.stack(tools.sbin("vsftpd"), conf)
        world.wait_port(2121, process=server)
        with world.at_peer():
            clients = [ftplib.FTP(timeout=15) for _ in range(SESSIONS)]
            for client in clients:
                client.connect(world.address, 2121)
                client.login()
            time.sleep(wait)
            kill(server)
            for number, client in enumerate(clients):
                up_and_down(client, path, f"in/{wait}-{number}.bin")
    return Outcome(f"3 MB down, 3 MB up, {SESSIONS * len(WAITS)} logins")


def up_and_down(client, path, name):
    with open(path, "rb") as file:
        client.storbinary(f"STOR {name}", file)
    got = bytearray()
    client.retrbinary(f"RETR {name}", got.extend)
    assert got == path.read_bytes(), "bytes differ"
    client.quit()

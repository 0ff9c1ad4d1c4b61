"""dnsmasq with a wildcard listener: it answers a TCP query only on addresses that its lists of
interfaces tell."""

import shutil
import signal
import socket
import struct

from harness import test
from harness.process import until

BINARY = shutil.which("dnsmasq", path="/usr/sbin:/usr/bin") or "dnsmasq"
PORT = 5300


def dnsmasq(world, *options):
    hosts = world.folder / "hosts"
    hosts.write_text("192.0.2.7 known.test\n")
    words = (
        "--keep-in-foreground",
        "--conf-file=/dev/null",
        f"--port={PORT}",
        "--no-resolv",
        "--no-hosts",
        "--user=root",
    )
    started = world.stack(
        BINARY, *words, f"--addn-hosts={hosts}", f"--pid-file={world.folder}/pid", *options
    )
    until(lambda: ask(world, "udp", 1) or not started.is_running(), 10, "dnsmasq answers")
    assert started.is_running(), started.tail()
    return started


def query(name, number):
    labels = b"".join(bytes([len(label)]) + label.encode() for label in name.split("."))
    return struct.pack(">6H", number, 0x100, 1, 0, 0, 0) + labels + struct.pack(">B2H", 0, 1, 1)


def ask(world, how, number, address=None):
    """The address that `known.test` has, or nothing."""
    to = (address or world.address, PORT)
    asked = query("known.test", number)
    family = socket.AF_INET6 if ":" in to[0] else socket.AF_INET
    try:
        with world.at_peer():
            sock = socket.socket(family, socket.SOCK_STREAM if how == "tcp" else socket.SOCK_DGRAM)
        with sock:
            sock.settimeout(1)
            sock.connect(to)
            if how == "tcp":
                sock.sendall(struct.pack(">H", len(asked)) + asked)
                length = sock.recv(2, socket.MSG_WAITALL)
                answer = (
                    sock.recv(struct.unpack(">H", length)[0], socket.MSG_WAITALL) if length else b""
                )
            else:
                sock.sendall(asked)
                answer = sock.recv(4096)
    except OSError:
        return None
    if not answer:
        return None
    assert answer[:2] == struct.pack(">H", number), answer
    return socket.inet_ntoa(answer[-4:])


def answers(world, address=None, count=20):
    for number in range(1, count + 1):
        for how in ("udp", "tcp"):
            assert ask(world, how, number, address) == "192.0.2.7", (how, number, address)


@test
def dnsmasq_with_a_wildcard_listener_answers_over_udp_and_tcp(world):
    world.use_ipv6()
    started = dnsmasq(world)
    for address in (world.STACK, world.STACK6):
        answers(world, address)
    started.signal(signal.SIGHUP)
    answers(world)
    assert started.stop() == 0


@test
def dnsmasq_binds_to_the_interface_that_it_is_given(world):
    """It finds its addresses by the interface's name."""
    started = dnsmasq(world, "--interface=eth1", "--bind-interfaces")
    answers(world)
    if world.mode != "kernel":
        assert world.address in world.admin("why", started.pid).output()

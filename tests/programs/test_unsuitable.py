"""Interfaces and privileges that a device of the wanted kind cannot be made of: one sentence, or
the next best mode, and nothing changed on the interface."""

import ctypes
import json
import mmap
import socket
import struct
import subprocess

from harness import test
from harness.net import LIBC
from harness.process import until
from test_refusals import refused

ONLY = ("inprocess",)
XDP = ["--if", "eth1", "--ip", "10.77.0.2/24", "--gw", "10.77.0.1", "--device", "xdp"]


def shape(world, name="eth1"):
    """All that the kernel tells of the interface, its programs and its clsact among it."""
    asked = (
        ["ip", "-d", "-json", "link", "show", name],
        ["tc", "-json", "filter", "show", "dev", name, "ingress"],
        ["ethtool", "-k", name],
    )
    told = []
    for words in asked:
        done = subprocess.run([*world.stack_ns.prefix(), *words], capture_output=True, text=True)
        told.append(done.stdout)
    link = json.loads(told[0])[0]
    for word in ("operstate", "flags"):
        link.pop(word)
    # Timers of a bridge.
    link.get("linkinfo", {}).pop("info_data", None)
    return link, told[1:]


def refused_unchanged(world, *words, name="eth1", **keywords):
    before = shape(world, name)
    refused(world, "run", *words, "--", "true", **keywords)
    assert shape(world, name) == before


@test(modes=ONLY)
def an_interface_with_an_xdp_program_of_another_program_is_not_taken(world):
    world.kind = "xdp"
    server = world.stack(*world.program("engines.py"), "own", 7000, 1)
    world.wait_port(7000, process=server)
    before = shape(world)
    assert before[0]["xdp"]["prog"]["id"], before
    # A stack of another directory, to which the first one is any program of somebody's.
    elsewhere = world.folder / "elsewhere"
    words = [world.slipstack, "run", "--run-dir", elsewhere, *XDP, "--", "true"]
    words[words.index("10.77.0.2/24")] = "10.77.0.9/24"
    second = world.beside(*words)
    assert second.wait(15) != 0
    told = second.errors().strip()
    assert 'another XDP program is on interface "eth1"' in told and "packet" in told, told
    assert len(told.splitlines()) == 1, told
    until(lambda: not list(elsewhere.rglob("control")), 5, "the second keeper has gone")
    assert shape(world) == before
    with world.connect(7000) as sock:
        sock.sendall(b"who\n")
        assert sock.recv(100)


AF_XDP, SOL_XDP, XDP_COPY = 44, 283, 2


def bind_queue(world):
    """An AF_XDP socket of another program on the only queue of eth1, with its memory."""
    with world.stack_ns.inside():
        sock, index = socket.socket(AF_XDP, socket.SOCK_RAW), socket.if_nametoindex("eth1")
    memory = mmap.mmap(-1, 64 * 2048)
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    sock.setsockopt(SOL_XDP, 4, struct.pack("QQIIII", start, len(memory), 2048, 0, 0, 0))
    # Fill, completion, receive and transmit ring.
    for ring in (5, 6, 2, 3):
        sock.setsockopt(SOL_XDP, ring, struct.pack("I", 64))
    address = struct.pack("HHIII", AF_XDP, XDP_COPY, index, 0, 0)
    assert LIBC.bind(sock.fileno(), address, len(address)) == 0
    return sock, memory


@test(modes=ONLY)
def a_queue_with_an_af_xdp_socket_of_another_program_is_not_taken(world):
    sock, memory = bind_queue(world)
    says = ['queue 0 of interface "eth1" has an AF_XDP socket of another program']
    refused_unchanged(world, *XDP, "--xdp-mode", "native", says=says)
    sock.close()
    world.kind = "xdp"
    server = world.stack(*world.program("engines.py"), "own", 7000, 1)
    world.wait_port(7000, process=server)


@test(modes=ONLY)
def without_cap_bpf_or_cap_net_raw_the_capability_is_named(world):
    for missing, named in (("bpf,-sys_admin", "CAP_BPF"), ("net_raw", "CAP_NET_RAW")):
        prefix = ["setpriv", "--inh-caps", f"-{missing}", "--bounding-set", f"-{missing}"]
        for kind in ("xdp", "packet"):
            words = [*XDP[:-1], kind]
            refused_unchanged(world, *words, says=[named], prefix=prefix)


@test(modes=ONLY)
def a_driver_without_xdp_gets_a_generic_program_or_is_named(world):
    world.stack_ns.ip("link", "add", "bridge0", "type", "bridge")
    world.stack_ns.sysctl("net.ipv6.conf.bridge0.disable_ipv6", 1)
    world.stack_ns.ip("link", "set", "eth1", "master", "bridge0")
    world.stack_ns.ip("link", "set", "bridge0", "up")
    words = ["bridge0" if word == "eth1" else word for word in XDP]
    for mode, says in (
        ("native", ['the driver of interface "bridge0"', "--xdp-mode generic"]),
        ("zerocopy", ['the driver of interface "bridge0"']),
    ):
        refused_unchanged(world, *words, "--xdp-mode", mode, says=says, name="bridge0")
    # The driver of eth1 has native programs, and does not let its memory be used.
    world.stack_ns.ip("link", "set", "eth1", "nomaster")
    says = ['the driver of interface "eth1" has no XDP mode "zerocopy"']
    refused_unchanged(world, *XDP, "--xdp-mode", "zerocopy", says=says)
    world.stack_ns.ip("link", "set", "eth1", "master", "bridge0")
    program = world.program("engines.py")
    run = [world.slipstack, "run", "--run-dir", world.run_dir, *words, "--"]
    server = world.beside(*run, *program, "own", 7000, 1)
    world.wait_port(7000, process=server)
    report = json.loads(world.admin("status", "--json").output())[0]
    assert report["device"]["device"]["kind"] == "xdp:generic", report["device"]

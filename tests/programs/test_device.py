"""Kinds of devices beside the usual ones: the arguments of `--device`, and the output about
them."""

import json
import socket
import struct

from harness import test
from harness.process import until
from harness.world import PYTHON

ONLY = ("inprocess", "instance")
# Not the network that is used by default.
STACK = "10.88.0.2"
STRANGER = "10.88.0.9"

SENDER = f"""
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for n in range(2000):
    s.sendto(b'x' * 500, ('{STRANGER}', 9))
print('sent')
"""

RECEIVER = f"""
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(('{STACK}', 9))
for _ in range(3):
    text, source = s.recvfrom(100)
    print(text.decode(), *source)
"""


def options(kind):
    return ("--device", kind, "--ip", f"{STACK}/24")


def device(world):
    """The line of `status` about the only device."""
    (report,) = json.loads(world.admin("status", "--json").output())
    return report["device"]["device"]


def run(world, kind, text):
    """A program of Python's on a device of that kind, in either placement."""
    words = (PYTHON, "-u", "-c", text)
    if world.mode == "inprocess":
        return world.stack(*words, options=options(kind))
    started = world.start_instance("d", *options(kind))
    assert started.is_running()
    words = [
        str(world.slipstack),
        "run",
        "--run-dir",
        str(world.run_dir),
        "--instance",
        "d",
        "--",
        *words,
    ]
    return world.process([*world.stack_ns.prefix(), *words])


@test(modes=ONLY, device="tap")
def a_null_device_takes_everything_and_has_every_neighbour(world):
    program = run(world, "null", SENDER + "import time; time.sleep(60)")
    until(lambda: "sent" in program.output(), 10, "the datagrams have left")
    assert device(world)["kind"] == "null"


@test(modes=("inprocess",), device="tap")
def a_capture_is_replayed_to_a_program(world):
    capture = world.folder / "three.pcapng"
    capture.write_bytes(pcapng([datagram(STRANGER, STACK, 9, b"frame %d" % n) for n in range(3)]))
    program = run(world, f"replay:{capture},fast", RECEIVER)
    lines = program.finish(15).splitlines()
    assert lines == [f"frame {n} {STRANGER} 4000" for n in range(3)], program.tail()


@test(modes=("inprocess",), device="tap")
def a_kind_that_does_not_exist_is_refused_with_those_that_do(world):
    program = world.stack("true", options=options("fddi"))
    assert program.wait(10) != 0
    assert "--device is 'fddi' but must be auto, packet (" in program.errors(), program.errors()
    for kind in ("xdp", "tap", "memif:", "dpdk:", "null", "replay:"):
        assert f" {kind}" in program.errors(), program.errors()


@test(modes=("inprocess",), device="tap")
def status_and_why_name_the_kind_of_a_device(world):
    program = world.stack(*world.program("threaded.py"), "server", 7000)
    world.wait_port(7000, process=program)
    said = "device tap: no interface was named, so one was made"
    assert said in world.admin("status").output()
    assert said in world.admin("why", program.pid).output()
    other = world.stack(
        "true", options=("--device", "null", "--if", "slip0", "--ip", f"{STACK}/24")
    )
    assert other.wait(10) != 0
    assert "in use as a device of kind tap" in other.errors(), other.errors()


def datagram(source, destination, port, payload):
    udp = struct.pack("!HHHH", 4000, port, 8 + len(payload), 0) + payload
    header = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(udp), 1, 0, 64, 17, 0)
    header += socket.inet_aton(source) + socket.inet_aton(destination)
    total = sum(struct.unpack("!10H", header))
    total = (total & 0xFFFF) + (total >> 16)
    header = header[:10] + struct.pack("!H", ~(total + (total >> 16)) & 0xFFFF) + header[12:]
    return bytes([2, 0, 0, 0, 0, 7, 2, 0, 0, 0, 0, 8, 8, 0]) + header + udp


def pcapng(frames):
    def block(kind, body):
        body += bytes(-len(body) % 4)
        size = struct.pack("<I", len(body) + 12)
        return struct.pack("<I", kind) + size + body + size

    out = block(0x0A0D0D0A, struct.pack("<IHHq", 0x1A2B3C4D, 1, 0, -1))
    out += block(1, struct.pack("<HHI", 1, 0, 0))
    for n, frame in enumerate(frames):
        out += block(6, struct.pack("<IIIII", 0, 0, 1000 * n, len(frame), len(frame)) + frame)
    return out

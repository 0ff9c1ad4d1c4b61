"""Kinds of devices beside the usual ones: the arguments of `--device`, and the output about
them."""

import json
import socket
import struct

from harness import test
from harness.process import until
from harness.world import PYTHON
from test_logs import keepers_log
from test_refusals import refused

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


TIMED_RECEIVER = f"""
import socket, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(('{STACK}', 9))
s.recv(100)
start = time.monotonic()
s.recv(100)
print(time.monotonic() - start)
"""


@test(modes=("inprocess",), device="tap")
def a_capture_of_each_format_and_resolution_is_replayed_with_its_pauses(world):
    frames = [datagram(STRANGER, STACK, 9, b"x"), datagram(STRANGER, STACK, 9, b"y")]
    for name, content in (
        ("micro.pcapng", pcapng(frames, [0, 300_000])),
        ("milli.pcapng", pcapng(frames, [0, 300], resolution=3)),
        ("binary.pcapng", pcapng(frames, [0, 300], resolution=0x80 | 10)),
        ("micro.pcap", pcap(frames, [0, 300_000])),
        ("nano.pcap", pcap(frames, [0, 300_000_000], magic=0xA1B23C4D)),
    ):
        capture = world.folder / name
        capture.write_bytes(content)
        pause = float(run(world, f"replay:{capture}", TIMED_RECEIVER).finish(15))
        # A machine that was busy with the first frame makes the pause shorter.
        assert 0.1 < pause < 10, f"{name}: {pause} s and not 0.3"
        world.leftovers(10)


@test(modes=("inprocess",), device="tap")
def a_capture_that_is_cut_off_is_replayed_as_far_as_it_goes(world):
    frames = [datagram(STRANGER, STACK, 9, b"frame %d" % n) for n in range(4)]
    whole = pcap(frames, [0, 1, 2, 3])
    half = whole[: -len(frames[0]) // 2]
    cut_frame = pcap([b"x" * 60, *frames[:3]], [0, 1, 2, 3], lost=1)
    for name, content, told in (
        ("half.pcap", half, "it ends in the middle of a block"),
        ("cut.pcap", cut_frame, "1 of its frames were left out: they are cut off"),
    ):
        capture = world.folder / name
        capture.write_bytes(content)
        text = RECEIVER + "import time; time.sleep(60)"
        program = run(world, f"replay:{capture},fast", text)
        lines = [f"frame {n} {STRANGER} 4000" for n in range(3)]
        until(lambda: program.output().splitlines() == lines, 10, f"{name} is replayed")
        until(lambda: told in keepers_log(world), 10, "the keeper says what is wrong with it")
        program.kill()
        world.leftovers(10)


@test(modes=("inprocess",), device="tap")
def files_that_are_no_captures_of_an_ethernet_are_refused(world):
    frame = datagram(STRANGER, STACK, 9, b"x")
    for name, content, says in (
        ("empty", b"", "it is neither a pcapng nor a pcap file"),
        ("text", b"10:00:00 IP 10.0.0.1.9 > 10.0.0.2.9: UDP" * 9, "neither a pcapng nor a pcap"),
        ("any.pcap", pcap([frame], [0], link=113), "its frames are not Ethernet's (LINUX_SLL)"),
        ("any.pcapng", pcapng([frame], link=276), "its frames are not Ethernet's (LINUX_SLL2)"),
        ("none.pcap", pcap([], []), "it has no whole frame that was received"),
        ("headers.pcap", pcap([frame], [0], lost=1), "it has no whole frame that was received"),
    ):
        capture = world.folder / name
        capture.write_bytes(content)
        words = options(f"replay:{capture}")
        refused(world, "run", *words, "--", "true", says=[says, str(capture)])
    words = options(f"replay:{world.folder}/nowhere")
    refused(world, "run", *words, "--", "true", says=["No such file or directory"])


@test(modes=("inprocess",), device="tap")
def another_capture_is_refused_while_one_is_replayed(world):
    first, second = world.folder / "first.pcap", world.folder / "second.pcap"
    for capture in (first, second):
        capture.write_bytes(pcap([datagram(STRANGER, STACK, 9, b"x")], [0]))
    program = world.stack("sleep", 60, options=options(f"replay:{first}"))
    until(lambda: "reached at" in program.errors(), 10, "the device is there")
    other = world.stack("true", options=options(f"replay:{second}"))
    assert other.wait(10) != 0
    said = other.errors()
    assert f"of kind replay:{first}, not replay:{second}; " in said, said
    assert len(said.splitlines()) == 1, said
    world.stack("true", options=options(f"replay:{first}")).finish(10)


@test(modes=("inprocess",), device="tap")
def an_unknown_kind_of_device_is_refused_with_a_list_of_those_that_exist(world):
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


def pcapng(frames, times=None, link=1, resolution=None):
    def block(kind, body):
        body += bytes(-len(body) % 4)
        size = struct.pack("<I", len(body) + 12)
        return struct.pack("<I", kind) + size + body + size

    out = block(0x0A0D0D0A, struct.pack("<IHHq", 0x1A2B3C4D, 1, 0, -1))
    told = b"" if resolution is None else struct.pack("<HHBxxxI", 9, 1, resolution, 0)
    out += block(1, struct.pack("<HHI", link, 0, 0) + told)
    for frame, time in zip(frames, times or range(0, 1000 * len(frames), 1000)):
        out += block(6, struct.pack("<IIIII", 0, 0, time, len(frame), len(frame)) + frame)
    return out


def pcap(frames, times, link=1, magic=0xA1B2C3D4, lost=0):
    """`lost`: bytes of the first frame that were not captured."""
    out = struct.pack("<IHHiIII", magic, 2, 4, 0, 0, 262144, link)
    for n, (frame, time) in enumerate(zip(frames, times)):
        original = len(frame) + (lost if n == 0 else 0)
        out += struct.pack("<IIII", 0, time, len(frame), original) + frame
    return out

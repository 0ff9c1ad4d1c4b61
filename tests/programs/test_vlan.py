"""802.1Q: a stack in a VLAN of its interface, seen by a packet socket at the other end and by another stack."""

import hashlib
import socket
import struct

from harness import test
from harness.process import until

SOL_PACKET, PACKET_AUXDATA = 263, 8
VLAN = 7


class Wire:
    """Frames with tags, to and from the stack: the kernel keeps the tags of received ones beside them."""

    def __init__(self, world):
        with world.at_peer():
            self.raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
        self.raw.bind(("eth1", 0))
        self.raw.setsockopt(SOL_PACKET, PACKET_AUXDATA, 1)
        self.mac = self.raw.getsockname()[4]

    def asks(self, tag, own, whom):
        """Sends an ARP request; the tag of the answer, or None."""
        target = socket.inet_aton(whom)
        arp = struct.pack("!HHBBH6s4s6s4s", 1, 0x0800, 6, 4, 1, self.mac, socket.inet_aton(own), b"\0" * 6, target)
        between = b"" if tag is None else struct.pack("!HH", 0x8100, tag)
        self.raw.send(b"\xff" * 6 + self.mac + between + b"\x08\x06" + arp)
        self.raw.settimeout(1)
        while True:
            try:
                frame, control, _, address = self.raw.recvmsg(2048, 256)
            except TimeoutError:
                return None
            is_answer = frame[12:14] == b"\x08\x06" and frame[20:22] == b"\0\2" and frame[28:32] == target
            if address[2] == socket.PACKET_OUTGOING or not is_answer:
                continue
            for level, kind, data in control:
                if (level, kind) == (SOL_PACKET, PACKET_AUXDATA):
                    status, tci = struct.unpack_from("=I", data)[0], struct.unpack_from("=H", data, 16)[0]
                    return tci if status & 0x10 else 0


@test(modes=("inprocess",))
def a_stack_in_a_vlan_speaks_in_that_alone(world):
    server = world.stack(*world.program("udp_echo.py"), 7000, options=["--vlan", str(VLAN)])
    until(lambda: "reached at" in server.errors(), 10, "the stack is up")
    wire = Wire(world)
    assert wire.asks(VLAN, "10.77.0.9", world.STACK) == VLAN
    assert wire.asks(VLAN | 5 << 13, "10.77.0.9", world.STACK) == VLAN, "priority does not matter"
    for tag in (None, 0, VLAN + 1):
        assert wire.asks(tag, "10.77.0.9", world.STACK) is None, tag


@test(modes=("inprocess",))
def without_a_vlan_a_tag_may_have_a_priority_alone(world):
    server = world.stack(*world.program("udp_echo.py"), 7000)
    until(lambda: "reached at" in server.errors(), 10, "the stack is up")
    wire = Wire(world)
    assert wire.asks(None, "10.77.0.9", world.STACK) == 0
    assert wire.asks(3 << 13, "10.77.0.9", world.STACK) == 0
    assert wire.asks(VLAN, "10.77.0.9", world.STACK) is None


@test(modes=("inprocess",))
def two_stacks_meet_in_a_vlan(world):
    folder = world.folder / "files"
    folder.mkdir()
    data = hashlib.shake_256(b"vlan").digest(3_000_000)
    (folder / "big").write_bytes(data)
    server = world.stack("/usr/bin/python3", "-m", "http.server", 8000, cwd=folder, options=["--vlan", str(VLAN)])
    until(lambda: "reached at" in server.errors(), 10, "the stack is up")
    out = world.folder / "got"
    other = ["--if", "eth1", "--ip", "10.77.0.9/24", "--vlan", VLAN, "--run-dir", world.run_dir]
    fetch = ["curl", "-sS", "--retry", 5, "--retry-connrefused", "--max-time", 30, "-o", out]
    world.peer(world.slipstack, "run", *other, "--", *fetch, f"http://{world.STACK}:8000/big").finish()
    assert out.read_bytes() == data


@test(modes=("inprocess",))
def a_stack_that_is_another_than_asked_for_is_not_joined(world):
    """By programs and instances alike: a keeper of the interface runs already."""
    server = world.stack(*world.program("udp_echo.py"), 7000)
    until(lambda: "reached at" in server.errors(), 10, "the stack is up")
    device = ["--run-dir", world.run_dir, "--if", "eth1"]
    table = [
        (["--ip", f"{world.STACK}/24", "--vlan", VLAN], "is in no VLAN, not in VLAN 7"),
        (["--ip", "10.77.0.99/24"], "has the address 10.77.0.2/24, not 10.77.0.99/24"),
    ]
    for options, why in table:
        for words in (["run", *device, *options, "--", "true"], ["instance", "--name", "a", *device, *options]):
            started = world.beside(world.slipstack, *words)
            assert started.wait(10) != 0, words
            assert why in started.errors(), started.tail()
            assert "ready" not in started.output(), started.tail()


@test(modes=("inprocess",))
def many_addresses_are_served_by_one_stack(world):
    """As many virtual ones as an interface of F-Stack has, of each family."""
    world.use_ipv6()
    v4 = [f"110.110.{n % 3}.{n + 1}" for n in range(64)]
    v6 = [f"fd00:110:{n % 3}::{n + 1:x}" for n in range(64)]
    options = ["--ip", ",".join([f"{ip}/32" for ip in v4] + [f"{ip}/128" for ip in v6])]
    server = world.stack(*world.program("dual_echo.py"), 8000, options=options)
    world.wait_port(8000, process=server)
    world.peer_ns.ip("route", "add", "110.110.0.0/16", "via", world.STACK)
    world.peer_ns.ip("route", "add", "fd00:110::/32", "via", world.STACK6)
    for address in v4 + v6:
        with world.connect(8000, address=address) as client:
            client.sendall(b"who\n")
            assert client.makefile().readline().strip().removeprefix("::ffff:") in (world.PEER, world.PEER6), address

"""802.1Q: a stack in a VLAN of its interface, seen by a packet socket at the other end and by
another stack."""

import hashlib
import itertools
import json
import os
import signal
import socket
import struct
import time

from harness import test
from harness.process import until

SOL_PACKET, PACKET_AUXDATA = 263, 8
VLAN = 7


class Wire:
    """Frames with tags, to and from the stack: the kernel keeps the tags of received ones beside
    them."""

    def __init__(self, world):
        with world.at_peer():
            self.raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
        self.raw.bind(("eth1", 0))
        self.raw.setsockopt(SOL_PACKET, PACKET_AUXDATA, 1)
        self.mac = self.raw.getsockname()[4]

    def asks(self, tag, own, whom):
        """Sends an ARP request; the tag of the answer, or None."""
        target = socket.inet_aton(whom)
        arp = struct.pack(
            "!HHBBH6s4s6s4s", 1, 0x0800, 6, 4, 1, self.mac, socket.inet_aton(own), b"\0" * 6, target
        )
        between = b"" if tag is None else struct.pack("!HH", 0x8100, tag)
        self.raw.send(b"\xff" * 6 + self.mac + between + b"\x08\x06" + arp)
        self.raw.settimeout(1)
        while True:
            try:
                frame, control, _, address = self.raw.recvmsg(2048, 256)
            except TimeoutError:
                return None
            is_answer = (
                frame[12:14] == b"\x08\x06" and frame[20:22] == b"\0\2" and frame[28:32] == target
            )
            if address[2] == socket.PACKET_OUTGOING or not is_answer:
                continue
            for level, kind, data in control:
                if (level, kind) == (SOL_PACKET, PACKET_AUXDATA):
                    status, tci = (
                        struct.unpack_from("=I", data)[0],
                        struct.unpack_from("=H", data, 16)[0],
                    )
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
    file = world.folder / "frames"
    words = [world.slipstack, "capture", "--run-dir", world.run_dir, file, "--count", 2]
    capture = world.beside(*words)
    until(lambda: "capturing" in capture.errors(), 10, "the capture has begun")
    assert wire.asks(VLAN, "10.77.0.9", world.STACK) == VLAN
    capture.wait(10)
    tagged_arp = struct.pack("!HHH", 0x8100, VLAN, 0x0806)
    assert file.read_bytes().count(tagged_arp) == 2, "both frames have their tag"


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
    server = world.stack(
        "/usr/bin/python3", "-m", "http.server", 8000, cwd=folder, options=["--vlan", str(VLAN)]
    )
    until(lambda: "reached at" in server.errors(), 10, "the stack is up")
    out = world.folder / "got"
    other = ["--if", "eth1", "--ip", "10.77.0.9/24", "--vlan", VLAN, "--run-dir", world.run_dir]
    fetch = ["curl", "-sS", "--retry", 5, "--retry-connrefused", "--max-time", 30, "-o", out]
    world.peer(
        world.slipstack, "run", *other, "--", *fetch, f"http://{world.STACK}:8000/big"
    ).finish()
    assert out.read_bytes() == data


@test(modes=("inprocess",))
def a_stack_with_another_address_or_vlan_is_not_joined(world):
    """By programs and instances alike: a keeper of the interface runs already."""
    server = world.stack(*world.program("udp_echo.py"), 7000)
    until(lambda: "reached at" in server.errors(), 10, "the stack is up")
    device = ["--run-dir", world.run_dir, "--if", "eth1"]
    table = [
        (["--ip", f"{world.STACK}/24", "--vlan", VLAN], "is in no VLAN, not in VLAN 7"),
        (["--ip", "10.77.0.99/24"], "has the address 10.77.0.2/24, not 10.77.0.99/24"),
    ]
    for options, why in table:
        for words in (
            ["run", *device, *options, "--", "true"],
            ["instance", "--name", "a", *device, *options],
        ):
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
            assert client.makefile().readline().strip().removeprefix("::ffff:") in (
                world.PEER,
                world.PEER6,
            ), address


class Router:
    """The other end of several VLANs: a station in each that answers ARP for its gateway and speaks
    TCP by hand as a client behind it."""

    CLIENT = "55.55.55.55"

    def __init__(self, world):
        with world.at_peer():
            self.raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
        self.raw.bind(("eth1", 0))
        self.raw.setsockopt(SOL_PACKET, PACKET_AUXDATA, 1)
        self.raw.settimeout(0.2)

    @staticmethod
    def mac(tag):
        return bytes([2, 0, 0, 0, 9, tag])

    def send(self, tag, to, kind, payload):
        tagged = struct.pack("!HH", 0x8100, tag) if tag else b""
        self.raw.send(to + self.mac(tag) + tagged + kind + payload)

    def receive(self, end):
        """The next frame of the stack with its tag, once ARP for gateways is answered."""
        while time.monotonic() < end:
            try:
                frame, control, _, address = self.raw.recvmsg(4096, 256)
            except TimeoutError:
                continue
            if address[2] == socket.PACKET_OUTGOING:
                continue
            tag = 0
            for level, kind, data in control:
                if (level, kind) == (SOL_PACKET, PACKET_AUXDATA) and struct.unpack_from("=I", data)[
                    0
                ] & 0x10:
                    tag = struct.unpack_from("=H", data, 16)[0] & 0xFFF
            if (
                frame[12:14] == b"\x08\x06"
                and frame[20:22] == b"\0\1"
                and frame[38:42] == self.gateway(tag)
            ):
                answer = (
                    struct.pack("!HHBBH", 1, 0x0800, 6, 4, 2)
                    + self.mac(tag)
                    + frame[38:42]
                    + frame[22:32]
                )
                self.send(tag, frame[6:12], b"\x08\x06", answer)
                continue
            yield tag, frame

    @staticmethod
    def gateway(tag):
        return socket.inet_aton(f"10.10.{tag}.1")

    def find(self, tag, whom, seconds=5):
        """The link-layer address that answers for `whom` in a VLAN."""
        target = socket.inet_aton(whom)
        arp = (
            struct.pack("!HHBBH", 1, 0x0800, 6, 4, 1)
            + self.mac(tag)
            + self.gateway(tag)
            + b"\0" * 6
            + target
        )
        end = time.monotonic() + seconds
        self.send(tag, b"\xff" * 6, b"\x08\x06", arp)
        for seen, frame in self.receive(end):
            if frame[12:14] == b"\x08\x06" and frame[20:22] == b"\0\2" and frame[28:32] == target:
                assert seen == tag, f"the answer came in VLAN {seen}, not {tag}"
                return frame[22:28]
        raise AssertionError(f"nobody answers for {whom} in VLAN {tag}")

    def handshake(self, tag, mac, to, port, own_port, seconds=5):
        """A SYN from behind the gateway: the tag and the link-layer destination of the SYN-ACK."""
        source, target = socket.inet_aton(self.CLIENT), socket.inet_aton(to)
        tcp = struct.pack("!HHIIBBHHH", own_port, port, 1000, 0, 5 << 4, 2, 65535, 0, 0)
        tcp = (
            tcp[:16]
            + checksum(source + target + struct.pack("!BBH", 0, 6, len(tcp)) + tcp)
            + tcp[18:]
        )
        ip = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(tcp), 1, 0, 64, 6, 0) + source + target
        ip = ip[:10] + checksum(ip) + ip[12:]
        end = time.monotonic() + seconds
        self.send(tag, mac, b"\x08\x00", ip + tcp)
        for seen, frame in self.receive(end):
            is_answer = (
                frame[12:14] == b"\x08\x00" and frame[23] == 6 and frame[26:34] == target + source
            )
            if is_answer and frame[36:38] == struct.pack("!H", own_port):
                return seen, frame[:6], frame[47]
        raise AssertionError(f"no answer from {to} in VLAN {tag}")


def checksum(data):
    data += b"\0" * (len(data) % 2)
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    total = (total & 0xFFFF) + (total >> 16)
    return struct.pack("!H", ~(total + (total >> 16)) & 0xFFFF)


VLANS = (10, 20, 30)


def set_up(world, tag):
    """The set-up of one VLAN as users of F-Stack enter it, command by command."""
    name = f"f-stack-0.{tag}"
    vips = [f"110.110.{tag}.1", f"110.110.{tag}.2"]
    commands = [
        ["ifconfig", "-p", 0, name, "create"],
        [
            "ifconfig",
            "-p0",
            name,
            "inet",
            f"10.10.{tag}.5",
            "netmask",
            "255.255.255.0",
            "broadcast",
            f"10.10.{tag}.255",
        ],
        *(
            ["ifconfig", "-p", 0, name, "inet", vip, "netmask", "255.255.255.255", "alias"]
            for vip in vips
        ),
        ["ifconfig", "-p", 0, name, "inet6", f"fd00:10:{tag}::5", "prefixlen", 64],
        *(
            ["ifconfig", "-p", 0, name, "inet6", f"fd00:110:{tag}::{n}", "prefixlen", 128, "alias"]
            for n in (1, 2)
        ),
        ["route", "-p", 0, "add", "-net", "0.0.0.0", f"10.10.{tag}.1", "-fib", tag],
        [
            "ipfw",
            "-P",
            0,
            "add",
            tag * 10,
            "setfib",
            tag,
            "ip",
            "from",
            f"10.10.{tag}.0/24",
            "to",
            "any",
            "out",
        ],
        [
            "ipfw",
            "-P",
            0,
            "add",
            tag * 10 + 1,
            "setfib",
            tag,
            "ip",
            "from",
            f"110.110.{tag}.0/24",
            "to",
            "any",
            "out",
        ],
    ]
    for command in commands:
        done = world.admin(*command)
        assert done.wait(10) == 0, done.tail()


@test(modes=("inprocess", "instance"))
def three_vlans_with_gateways_and_virtual_addresses_are_set_up_while_a_server_runs(world):
    server = world.stack(*world.program("dual_echo.py"), 8000)
    world.wait_port(8000, process=server)
    with world.connect(8000) as before:
        before.sendall(b"who\n")
        reader = before.makefile()
        assert reader.readline()
        for tag in VLANS:
            set_up(world, tag)
        # Existing connections continue.
        before.sendall(b"who\n")
        assert reader.readline()
    # One rule for the packets of a VLAN, one for those of all.
    for words in (["900", "vlan", "20"], ["910"]):
        rule = ["add", words[0], "count", "tcp", "from", "any", "to", "me", "in", *words[1:]]
        world.admin("ipfw", *rule).finish()
    router = Router(world)
    port = 40000
    for tag in VLANS:
        for address in (f"10.10.{tag}.5", f"110.110.{tag}.1", f"110.110.{tag}.2"):
            port += 1
            mac = router.find(tag, address)
            seen, to, flags = router.handshake(tag, mac, address, 8000, port)
            assert (seen, to) == (
                tag,
                router.mac(tag),
            ), f"{address}: answered in VLAN {seen} to {to.hex()}"
            assert flags & 0x12 == 0x12, f"{address}: flags {flags:#x}"
    shown = world.admin("ipfw", "show").output().splitlines()
    counts = {line.split()[0]: line.split()[1:3] for line in shown}
    for number in ("00100", "00101", "00200", "00300"):
        packets, octets = map(int, counts[number])
        assert packets >= 1 and octets >= 40 * packets, shown
    in_vlan, of_all, undecided = (int(counts[number][0]) for number in ("00900", "00910", "65535"))
    assert in_vlan == 3 < 9 <= of_all < undecided, shown
    listed = world.admin("ipfw", "list").output()
    assert "00100 setfib 10 ip from 10.10.10.0/24 to any out" in listed, listed
    text = world.admin("ip", "route", "show", "table", 20).output()
    assert "default via 10.10.20.1 dev f-stack-0.20" in text, text
    parts_fail(world, router)
    gone = world.admin("ifconfig", "f-stack-0.20", "destroy")
    assert gone.wait(10) == 0, gone.tail()
    until(lambda: is_silent(router, 20, "10.10.20.5"), 5, "a VLAN that is gone is silent")
    with world.connect(8000) as after:
        after.sendall(b"who\n")
        assert after.makefile().readline()


def parts_fail(world, router):
    """What fails takes along only what stands on it."""
    ports = itertools.count(41000)

    def ways():
        return [way(tag, f"110.110.{tag}.1") for tag in VLANS]

    def way(tag, address):
        """The VLAN by which the answer leaves; 0: untagged."""
        try:
            mac = router.find(tag, address, 0.3)
            return router.handshake(tag, mac, address, 8000, next(ports), 0.5)[0]
        except AssertionError:
            return None

    def becomes(wanted, why):
        until(lambda: ways() == wanted, 5, why)

    world.admin("ip", "link", "set", "f-stack-0.20", "down").finish()
    becomes([10, None, 30], "one VLAN is down")
    world.admin("ip", "link", "set", "f-stack-0.20", "up").finish()
    becomes([10, 20, 30], "it is up")
    default = ["-net", "0.0.0.0", "10.10.30.1", "-fib", 30]
    world.admin("route", "-p", 0, "delete", *default).finish()
    becomes([10, 20, 0], "without a route in its table the main table's holds")
    keeper = json.loads(world.admin("status", "--json").output())[0]["keeper_pid"]
    os.kill(keeper, signal.SIGKILL)
    until(lambda: is_succeeded(world, keeper), 10, "the standby has taken over")
    becomes([10, 20, 0], "the successor has the same network")
    world.admin("route", "-p", 0, "add", *default).finish()
    becomes([10, 20, 30], "all parts are there")


def is_silent(router, tag, address):
    try:
        router.find(tag, address, 0.3)
    except AssertionError:
        return True
    return False


@test(modes=("inprocess", "instance"))
def addresses_and_routes_change_while_connections_go_on(world):
    """As `ip` does on the kernel, with its messages for refused commands."""
    server = world.stack(*world.program("dual_echo.py"), 8000)
    world.wait_port(8000, process=server)
    world.peer_ns.ip("route", "add", "10.60.0.0/16", "via", world.STACK)
    with world.connect(8000) as held:
        lines = held.makefile()

        def is_alive():
            held.sendall(b"who\n")
            return lines.readline() != ""

        steps = [
            (["addr", "add", "10.60.0.1/32", "dev", "eth1"], ""),
            (["addr", "add", "10.60.0.1/32", "dev", "eth1"], "File exists"),
            (["addr", "add", "10.60.0.2/32", "dev", "eth9"], "Cannot find device"),
            (["addr", "del", "10.60.0.7/32", "dev", "eth1"], "Cannot assign requested address"),
            (["route", "add", "10.61.0.0/16", "via", world.PEER], ""),
            (["route", "add", "10.61.0.0/16", "via", world.PEER], "File exists"),
            (["route", "add", "10.62.0.0/16", "via", "10.99.0.1"], "Nexthop has invalid gateway"),
            (["route", "del", "10.63.0.0/16"], "No such process"),
            (["rule", "add", "from", "10.60.0.1", "table", 77], ""),
            (["rule", "del", "from", "10.60.0.9"], "No such file or directory"),
        ]
        for words, says in steps:
            done = world.admin("ip", *words)
            assert (done.wait(10) == 0) == (says == ""), done.tail()
            assert says in done.errors(), done.tail()
            assert is_alive(), words
        world.wait_port(8000, address="10.60.0.1")
        listed = world.admin("ip", "-json", "addr").output()
        assert '"10.60.0.1"' in listed, listed
        assert "from 10.60.0.1 lookup 77" in world.admin("ip", "rule").output()
        keeper = json.loads(world.admin("status", "--json").output())[0]["keeper_pid"]
        os.kill(keeper, signal.SIGKILL)
        until(lambda: is_succeeded(world, keeper), 10, "the standby has taken over")
        assert "from 10.60.0.1 lookup 77" in world.admin("ip", "rule").output()
        assert answers(world, "10.60.0.1") and is_alive()
        assert world.admin("ip", "addr", "del", "10.60.0.1/32", "dev", "eth1").wait(10) == 0
        until(lambda: not answers(world, "10.60.0.1"), 5, "a removed address is gone")
        assert is_alive()


V6_ONLY = """
import socket
listener = socket.create_server(("::", 8000), family=socket.AF_INET6)
while True:
    listener.accept()[0].sendall(b"here")
"""


@test(modes=("inprocess", "instance"))
def a_listener_serves_addresses_of_its_family_that_come_later(world):
    """The stack had none of IPv6 when the server began."""
    server = world.stack("/usr/bin/python3", "-c", V6_ONLY)
    world.admin("wait", 8000).finish()
    world.peer_ns.sysctl("net.ipv6.conf.eth1.disable_ipv6", 0)
    world.peer_ns.ip("addr", "add", f"{world.PEER6}/64", "dev", "eth1", "nodad")
    made = world.admin("ip", "addr", "add", f"{world.STACK6}/64", "dev", "eth1", "nodad")
    assert made.wait() == 0, made.tail()

    def is_served():
        try:
            with world.connect(8000, 2, address=world.STACK6) as client:
                return client.recv(4) == b"here"
        except OSError:
            return False

    until(is_served, 10, f"the new address is served\n{server.tail()}")


def is_succeeded(world, keeper):
    told = world.admin("status", "--json")
    return (
        told.wait(10) == 0
        and told.output()
        and json.loads(told.output())[0]["keeper_pid"] != keeper
    )


def answers(world, address):
    try:
        world.connect(8000, 0.5, address).close()
    except OSError:
        return False
    return True

"""Groups and broadcasts of both families, with the kernel at the other end, and the reports to
routers."""

import socket
import struct
import time

from harness import test
from harness.process import until

PORT = 7005
GROUP, GROUP6 = "239.7.7.7", "ff15::77"
IS_EXCLUDE, TO_INCLUDE, TO_EXCLUDE = 2, 3, 4


def checksum(data):
    total = sum(struct.unpack(f"!{(len(data) + 1) // 2}H", data + b"\0" * (len(data) % 2)))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def records(frame):
    """(type, group) of every record of a report of IGMPv3 or MLDv2."""
    kind, at, width = frame[12:14], 14, 4
    if kind == b"\x08\x00" and frame[23] == 2:
        at += (frame[14] & 15) * 4
        if frame[at] != 0x22:
            return []
        assert checksum(frame[at : 14 + struct.unpack("!H", frame[16:18])[0]]) == 0, "IGMP checksum"
        assert frame[22] == 1 and frame[34:38] == b"\x94\x04\0\0", "TTL 1 and a router alert"
        assert frame[30:34] == bytes([224, 0, 0, 22])
    elif kind == b"\x86\xdd" and frame[20] == 0 and frame[62] == 143:
        at, width = 62, 16
        assert frame[21] == 1, "hop limit 1"
    else:
        return []
    count, at, found = struct.unpack("!H", frame[at + 6 : at + 8])[0], at + 8, []
    for _ in range(count):
        sources = struct.unpack("!H", frame[at + 2 : at + 4])[0]
        group = frame[at + 4 : at + 4 + width]
        found.append(
            (frame[at], socket.inet_ntop(socket.AF_INET if width == 4 else socket.AF_INET6, group))
        )
        at += 4 + width * (1 + sources)
    return found


class Router:
    """Receives membership reports at the peer's end, and sends queries."""

    def __init__(self, world):
        with world.at_peer():
            self.raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
        self.raw.bind(("eth1", 0))
        self.raw.settimeout(0.1)
        self.mac = self.raw.getsockname()[4]

    def hears(self, want, seconds=8):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            try:
                frame, address = self.raw.recvfrom(2048)
            except TimeoutError:
                continue
            if address[2] != socket.PACKET_OUTGOING and want in records(frame):
                return True
        return False

    def ask(self):
        """General queries of IGMPv3 and MLDv2, to be answered within a second."""
        body = struct.pack("!BBHIBBH", 0x11, 10, 0, 0, 2, 125, 0)
        body = body[:2] + struct.pack("!H", checksum(body)) + body[4:]
        header = struct.pack(
            "!BBHHHBBH4s4s4s",
            0x46,
            0xC0,
            24 + len(body),
            0,
            0,
            1,
            2,
            0,
            socket.inet_aton("10.77.0.1"),
            socket.inet_aton("224.0.0.1"),
            b"\x94\x04\0\0",
        )
        header = header[:10] + struct.pack("!H", checksum(header)) + header[12:]
        self.raw.send(b"\x01\0\x5e\0\0\1" + self.mac + b"\x08\0" + header + body)
        ends = socket.inet_pton(socket.AF_INET6, "fe80::1") + socket.inet_pton(
            socket.AF_INET6, "ff02::1"
        )
        body = struct.pack("!BBHHH16sBBH", 130, 0, 0, 1000, 0, b"\0" * 16, 2, 125, 0)
        total = checksum(ends + struct.pack("!II", len(body), 58) + body)
        body = body[:2] + struct.pack("!H", total) + body[4:]
        header = struct.pack("!IHBB", 6 << 28, 8 + len(body), 0, 1) + ends
        self.raw.send(
            b"\x33\x33\0\0\0\1"
            + self.mac
            + b"\x86\xdd"
            + header
            + bytes([58, 0, 5, 2, 0, 0, 1, 0])
            + body
        )


def speakers(world):
    """The peer's sockets, members themselves."""
    index = struct.pack("@I", 0)
    with world.at_peer():
        index = struct.pack("@I", socket.if_nametoindex("eth1"))
        v4 = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        v6 = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    v4.bind(("0.0.0.0", PORT))
    own = socket.inet_aton(world.PEER)
    v4.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, socket.inet_aton(GROUP) + own)
    v4.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, own)
    v4.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP, 0)
    v4.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
    v6.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    v6.bind(("::", PORT))
    v6.setsockopt(
        socket.IPPROTO_IPV6,
        socket.IPV6_JOIN_GROUP,
        socket.inet_pton(socket.AF_INET6, GROUP6) + index,
    )
    v6.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_IF, index)
    v6.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_LOOP, 0)
    for one in (v4, v6):
        one.settimeout(5)
    return {4: (v4, GROUP, world.PEER, world.STACK), 6: (v6, GROUP6, world.PEER6, world.STACK6)}


@test
def members_receive_and_send_and_report_to_routers(world):
    world.use_ipv6()
    router = Router(world)
    program = world.stack(*world.program("groups.py"), PORT, world.STACK, "eth1")
    until(lambda: "ready" in program.output(), 10, "the program is ready")
    assert "again EADDRINUSE" in program.output()
    sides = speakers(world)
    assert router.hears((TO_EXCLUDE, GROUP)), "no report of joining by IGMPv3"
    assert router.hears((TO_EXCLUDE, GROUP6)), "no report of joining by MLDv2"

    def told(line):
        until(lambda: line in program.output().splitlines(), 5, f"the line {line!r}")

    for version, (speaker, group, peer, stack) in sides.items():
        speaker.sendto(b"hello", (group, PORT))
        told(f"v{version} 0 {peer} hello")
        told(f"v{version} 1 {peer} hello")
        speaker.sendto(b"say", (group, PORT))
        got, sender = speaker.recvfrom(100)
        assert (got, sender[0]) == (b"said", stack), (got, sender)
        # The sender's own machine receives it too.
        told(f"v{version} 0 {stack} said")
        told(f"v{version} 1 {stack} said")
    router.ask()
    assert router.hears((IS_EXCLUDE, GROUP)), "an IGMPv3 query was not answered"
    router.ask()
    assert router.hears((IS_EXCLUDE, GROUP6)), "an MLDv2 query was not answered"
    for version, (speaker, group, peer, stack) in sides.items():
        speaker.sendto(b"leave", (group, PORT))
        assert router.hears((TO_INCLUDE, group)), f"no report of leaving {group}"
        before = program.output()
        speaker.sendto(b"gone", (group, PORT))
        time.sleep(0.3)
        assert "gone" not in program.output()[len(before) :]
    for line in program.output().splitlines():
        assert program.output().splitlines().count(line) == 1, f"twice: {line}"


@test
def two_programs_receive_one_group(world):
    """Separate engines in-process: each gets its copy, of its own datagrams and of the other's."""
    world.use_ipv6()
    router = Router(world)
    both = [world.stack(*world.program("groups.py"), PORT, world.STACK, "eth1") for _ in range(2)]
    for program in both:
        until(lambda: "ready" in program.output(), 10, "the program is ready")
    sides = speakers(world)
    for version, (speaker, group, peer, stack) in sides.items():
        speaker.sendto(b"hello", (group, PORT))
        speaker.sendto(b"say", (group, PORT))
        want = [f"v{version} {n} {peer} hello" for n in (0, 1)] + 2 * [
            f"v{version} {n} {stack} said" for n in (0, 1)
        ]
        for program in both:

            def got():
                return [
                    line
                    for line in program.output().splitlines()
                    if "hello" in line or "said" in line
                ]

            until(
                lambda: sorted(got()[-len(want) :]) == sorted(want),
                5,
                f"{want}, got {program.output()!r}",
            )
    # The group is left when the last program has gone.
    both[0].stop()
    assert not router.hears((TO_INCLUDE, GROUP), 1.5)
    both[1].stop()
    assert router.hears((TO_INCLUDE, GROUP))


@test
def broadcasts_arrive_and_leave_with_leave(world):
    world.use_ipv6()
    program = world.stack(*world.program("groups.py"), PORT, world.STACK, "eth1")
    until(lambda: "ready" in program.output(), 10, "the program is ready")
    speaker = speakers(world)[4][0]
    for number, everybody in enumerate(["10.77.0.255", "255.255.255.255"]):
        with world.at_peer():
            speaker.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"eth1")
        speaker.sendto(b"all%d" % number, (everybody, PORT))
        for member in (0, 1):
            line = f"v4 {member} {world.PEER} all{number}"
            until(lambda: line in program.output().splitlines(), 5, f"the line {line!r}")
            assert program.output().count(line) == 1
    speaker.sendto(b"shout", (world.STACK, PORT))
    speaker.sendto(b"shout", (GROUP, PORT))
    until(lambda: "shout EACCES" in program.output(), 5, "EACCES without SO_BROADCAST")
    while (got := speaker.recvfrom(100)) != (b"shouted", (world.STACK, PORT)):
        assert got[0].startswith(b"all"), got

"""Datagrams and echos that travel in fragments, from the kernel and to it."""

import hashlib
import socket
import struct

from harness import test
from harness.process import until


@test
def datagrams_in_fragments_arrive_whole(world):
    world.use_ipv6()
    server = world.stack(*world.program("udp_digest.py"), 7002)
    until(lambda: "ready" in server.output(), 10, "the server is ready")
    for family, address in [(socket.AF_INET, world.STACK), (socket.AF_INET6, world.STACK6)]:
        with world.at_peer(), socket.socket(family, socket.SOCK_DGRAM) as client:
            client.settimeout(1)
            answered = []
            for length in (1000, 1473, 4000, 20_000, 65_000):
                data = hashlib.shake_256(b"%d" % length).digest(length)
                want = f"{length} {hashlib.sha256(data).hexdigest()}".encode()
                ask(client, data, (address, 7002), want, answered)


def ask(client, question, where, want, answered):
    """Repeats a query until it is answered: datagrams may be lost, and a repeated query may be
    answered twice."""
    for _ in range(10):
        client.sendto(question, where)
        try:
            while (got := client.recv(65_536)) != want:
                assert (
                    got in answered
                ), f"{len(got)} bytes from {where[0]} answer nothing that was asked"
            answered.append(want)
            return
        except TimeoutError:
            pass
    raise AssertionError(f"no answer of {len(want)} bytes from {where[0]} to {len(question)} bytes")


@test
def large_datagrams_leave_in_fragments(world):
    world.use_ipv6()
    server = world.stack(*world.program("udp_blob.py"), 7003)
    until(lambda: "ready" in server.output(), 10, "the server is ready")
    sides = [(socket.AF_INET, world.STACK, 65_507), (socket.AF_INET6, world.STACK6, 65_527)]
    for family, address, longest in sides:
        with world.at_peer(), socket.socket(family, socket.SOCK_DGRAM) as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
            client.settimeout(1)
            answered = []
            for length in (1000, 1453, 1473, 4000, 20_000, longest):
                asked = b"%d" % length
                want = hashlib.shake_256(asked).digest(length)
                ask(client, asked, (address, 7003), want, answered)


ECHO_REQUEST = {socket.AF_INET: 8, socket.AF_INET6: 128}
ECHO_REPLY = {socket.AF_INET: 0, socket.AF_INET6: 129}
PROTOCOL = {socket.AF_INET: socket.IPPROTO_ICMP, socket.AF_INET6: socket.IPPROTO_ICMPV6}


@test
def large_echos_are_answered(world):
    world.use_ipv6()
    server = world.stack(*world.program("udp_blob.py"), 7003)
    until(lambda: "ready" in server.output(), 10, "the server is ready")
    for family, address in [(socket.AF_INET, world.STACK), (socket.AF_INET6, world.STACK6)]:
        with world.at_peer(), socket.socket(family, socket.SOCK_RAW, PROTOCOL[family]) as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
            client.settimeout(1)
            for length in (100, 4000, 60_000):
                body = hashlib.shake_256(b"%d" % length).digest(length)
                for attempt in range(10):
                    client.sendto(echo_request(family, body), (address, 0))
                    try:
                        if is_answered(client, family, body):
                            break
                    except TimeoutError:
                        assert attempt < 9, f"no answer to {length} bytes from {address}"


def echo_request(family, body):
    message = bytes([ECHO_REQUEST[family], 0, 0, 0, 0, 7, 0, 1]) + body
    if family == socket.AF_INET6:
        return message  # the kernel fills the checksum in
    words = struct.unpack(f"!{len(message) // 2}H", message)
    total = sum(words)
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return message[:2] + struct.pack("!H", ~total & 0xFFFF) + message[4:]


def is_answered(client, family, body):
    """Whether the answer is among what comes within the timeout."""
    while True:
        got = client.recv(65_536)
        if family == socket.AF_INET:
            got = got[(got[0] & 15) * 4 :]
        if got[0] == ECHO_REPLY[family] and got[8:] == body:
            return True


@test
def programs_of_one_device_talk_in_frames_as_long_as_the_link_takes(world):
    for namespace in (world.stack_ns, world.peer_ns):
        namespace.ip("link", "set", "eth1", "mtu", "9000")
    server = world.stack(*world.program("udp_blob.py"), 7003)
    until(lambda: "ready" in server.output(), 10, "the server is ready")
    lengths = (1000, 1960, 5000, 8972, 8973, 60_000)
    client = world.stack(*world.program("udp_asker.py"), world.address, 7003, *lengths).finish(30)
    assert client.split() == [word for length in lengths for word in (str(length), "True")], client

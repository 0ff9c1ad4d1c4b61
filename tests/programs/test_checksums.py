"""Options between datagrams, and datagrams without a checksum: SO_NO_CHECK, UDP_NO_CHECK6_TX and
UDP_NO_CHECK6_RX."""

import socket

from harness import test
from harness.world import PYTHON

PORT = 7660
IP_RECVTTL = 12
UDP_NO_CHECK6_TX, UDP_NO_CHECK6_RX = 101, 102
# A datagram without a checksum over each family, one with it, and which of the answers come.
PROGRAM = """
import socket, sys
peer, peer6, port = sys.argv[1], sys.argv[2], int(sys.argv[3])
v4 = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
v4.connect((peer, port))
v4.setsockopt(socket.SOL_SOCKET, 11, 1)
v4.send(b"bare")
v4.setsockopt(socket.SOL_SOCKET, 11, 0)
v4.send(b"full")
for tx, rx in ((1, 0), (1, 1), (0, 1)):
    v6 = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    v6.setsockopt(socket.IPPROTO_UDP, 101, tx)
    v6.setsockopt(socket.IPPROTO_UDP, 102, rx)
    v6.connect((peer6, port))
    v6.send(b"tx %d" % tx)
    v6.settimeout(5)
    print(rx, v6.recv(100).decode())
"""


def udp_checksums(raw, count):
    """Those of the datagrams that come, by what they say."""
    found = {}
    while len(found) < count:
        frame = raw.recv(65536)
        at = {b"\x08\0": 34, b"\x86\xdd": 54}.get(frame[12:14])
        protocol = frame[23] if at == 34 else frame[20]
        if (
            at
            and protocol == socket.IPPROTO_UDP
            and frame[at + 2 : at + 4] == PORT.to_bytes(2, "big")
        ):
            found[frame[at + 8 :].decode()] = int.from_bytes(frame[at + 6 : at + 8], "big")
    return found


@test
def a_datagram_without_a_checksum_is_sent_and_taken_as_asked(world):
    world.use_ipv6()
    with world.at_peer():
        raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
        v4 = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        v6 = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    with raw, v4, v6:
        for sock in (raw, v4, v6):
            sock.settimeout(10)
        raw.bind(("eth1", 0))
        v4.bind((world.PEER, PORT))
        v6.bind((world.PEER6, PORT))
        v6.setsockopt(socket.IPPROTO_UDP, UDP_NO_CHECK6_RX, 1)
        started = world.stack(PYTHON, "-u", "-c", PROGRAM, world.PEER, world.PEER6, PORT)
        assert [v4.recv(100), v4.recv(100)] == [b"bare", b"full"]
        for _ in range(3):
            _, sender = v6.recvfrom(100)
            # Only the socket that has asked for such answers hears the first.
            for is_bare, text in ((1, b"bare"), (0, b"full")):
                v6.setsockopt(socket.IPPROTO_UDP, UDP_NO_CHECK6_TX, is_bare)
                v6.sendto(text, sender)
        assert started.finish(20) == "0 full\n1 bare\n1 bare\n", started.tail()
        found = udp_checksums(raw, 4)
    assert found["bare"] == found["tx 1"] == 0, found
    assert found["full"] != 0 and found["tx 0"] != 0, found


TTLS = """
import socket, sys
sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
sock.connect((sys.argv[1], int(sys.argv[2])))
sock.send(b"first")
for ttl in range(1, 65):
    sock.setsockopt(socket.IPPROTO_IP, socket.IP_TTL, ttl)
    sock.send(b"%d" % ttl)
"""


@test
def an_option_holds_for_what_is_sent_after_it(world):
    """As traceroute does."""
    with world.at_peer():
        sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with sock:
        sock.settimeout(10)
        sock.setsockopt(socket.IPPROTO_IP, IP_RECVTTL, 1)
        sock.bind((world.PEER, PORT))
        world.stack(PYTHON, "-c", TTLS, world.PEER, PORT).finish(20)
        assert sock.recv(100) == b"first"
        for ttl in range(1, 65):
            data, control, _, _ = sock.recvmsg(100, 100)
            told = int.from_bytes(control[0][2], "little")
            assert (int(data), told) == (ttl, ttl)

"""Settings of a port by config.ini and options: tso, tx_csum_offoad_skip and promiscuous."""

import socket
import struct

from harness import test
from harness.world import PYTHON

PORT = 7670
COUNT = 200_000
FRAME_MAX = 1514
INI = """\
[dpdk]
lcore_mask=1
port_list=0
{settings}
[port0]
if_name=eth1
addr=10.77.0.2
netmask=255.255.255.0
broadcast=10.77.0.255
gateway=10.77.0.1
"""
SENDER = f"""
import signal, socket, sys
sock = socket.create_connection((sys.argv[1], {PORT}))
sock.sendall(bytes({COUNT}))
sock.shutdown(socket.SHUT_WR)
print(sock.recv(1), flush=True)
signal.pause()
"""


def is_right(frame):
    """Whether the checksum of a TCP segment is that of its bytes."""
    packet = frame[14 : 14 + int.from_bytes(frame[16:18], "big")]
    segment = packet[4 * (packet[0] & 15) :]
    data = packet[12:20] + struct.pack("!HH", socket.IPPROTO_TCP, len(segment)) + segment
    data += b"\0" * (len(data) % 2)
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total == 0xFFFF


def sent(world, settings):
    """Runs a program that sends, by this config.ini; returns the longest frame on the wire, whether
    all checksums are right, and whether the interface hears everything."""
    file = world.folder / "config.ini"
    file.write_text(INI.format(settings=settings))
    with world.at_peer():
        raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0800))
        listener = socket.create_server((world.PEER, PORT))
    with raw, listener:
        raw.bind(("eth1", 0))
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        raw.settimeout(10)
        listener.settimeout(10)
        words = [world.slipstack, "run", "--config", file, "--run-dir", world.run_dir, "--"]
        program = world.beside(*words, PYTHON, "-u", "-c", SENDER, world.PEER)
        client, _ = listener.accept()
        with client:
            client.settimeout(10)
            got = 0
            while data := client.recv(1 << 16):
                got += len(data)
            assert got == COUNT
            is_promiscuous = "promiscuity 1" in world.stack_ns.ip("-d", "link", "show", "eth1")
            raw.setblocking(False)
            longest, is_sound = 0, True
            try:
                while True:
                    frame, sender = raw.recvfrom(1 << 17)
                    is_own = sender[2] != socket.PACKET_OUTGOING
                    if is_own and frame[23] == socket.IPPROTO_TCP:
                        longest = max(longest, len(frame))
                        is_sound &= is_right(frame)
            except BlockingIOError:
                pass
        program.stop()
        world.admin("stop", "eth1").finish()
    return longest, is_sound, is_promiscuous


@test(modes=("inprocess",))
def segmentation_checksums_and_promiscuity_are_as_config_ini_says(world):
    longest, is_sound, is_promiscuous = sent(world, "tso=1\npromiscuous=0")
    assert longest > FRAME_MAX and not is_sound and not is_promiscuous
    longest, _, is_promiscuous = sent(world, "tso=0\npromiscuous=1")
    assert 0 < longest <= FRAME_MAX and is_promiscuous
    longest, is_sound, _ = sent(world, "tx_csum_offoad_skip=1")
    assert 0 < longest <= FRAME_MAX and is_sound
    assert "promiscuity 0" in world.stack_ns.ip("-d", "link", "show", "eth1")

"""The User Timeout option (RFC 5482): off as on Linux, and sent if the configuration says so."""

from harness import test
from harness.capture import Capture
from harness.process import until

OPTION = "--tcp-user-timeout-option"
# As tcpdump names it.
TOLD = "uto 0x2d"
# Sets TCP_USER_TIMEOUT, greets one client and prints its answer.
SERVER = """
import socket
listener = socket.create_server(("0.0.0.0", 7000))
listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 45_000)
print("ready", flush=True)
client, _ = listener.accept()
assert client.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 45_000
client.sendall(b"hello")
print(client.recv(100).decode(), flush=True)
"""


def segments_with_option(world, options):
    if world.mode == "instance" and world.instance is None:
        world.instance = world.start_instance("t", *options)
    words = [] if world.mode in ("instance", "kernel") else options
    server = world.stack("/usr/bin/python3", "-u", "-c", SERVER, options=words)
    until(lambda: "ready" in server.output(), 10, "the server listens")
    with Capture(world, "tcp", "port", "7000") as capture:
        with world.connect(7000) as client:
            assert client.recv(100) == b"hello"
            client.sendall(b"thanks")
        assert server.finish(10).split() == ["ready", "thanks"]
    ours = [segment for segment in capture.segments if segment.is_from(world.address)]
    assert len(ours) > 2, ours
    return [segment.flags for segment in ours if TOLD in segment.seq]


@test(modes=("kernel", "inprocess", "instance"))
def without_the_option_no_segment_carries_the_user_timeout(world):
    assert segments_with_option(world, []) == []


@test(modes=("inprocess", "instance"))
def the_syn_ack_and_the_first_segment_carry_the_user_timeout(world):
    flags = segments_with_option(world, [OPTION])
    assert flags == ["S.", "P."], flags

"""Datagrams that the kernel sends in fragments."""

import hashlib
import socket

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
            for length in (1000, 1473, 4000, 20_000, 65_000):
                data = hashlib.shake_256(b"%d" % length).digest(length)
                want = f"{length} {hashlib.sha256(data).hexdigest()}".encode()
                for attempt in range(10):
                    client.sendto(data, (address, 7002))
                    try:
                        assert client.recv(200) == want
                        break
                    except TimeoutError:
                        assert attempt < 9, f"no answer from {address} to {length} bytes"

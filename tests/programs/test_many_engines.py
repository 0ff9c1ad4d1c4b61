"""More engines than a word has bits: groups, shared ports and traffic to the last of them."""

import json
import socket
import struct

from harness import test
from harness.process import until

THREADS = 23
PROGRAMS = 4
GROUP = "239.1.2.3"

LISTENER = f"""
import socket, struct, sys
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
udp.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
udp.bind(("", 7001))
group = socket.inet_aton("{GROUP}") + socket.inet_aton(sys.argv[1])
udp.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, group)
print("joined", flush=True)
print("heard", udp.recv(100).decode(), flush=True)
udp.recv(100)
"""


@test(modes=("inprocess",), timeout=90)
def seventy_engines_share_a_port_and_all_receive_a_group(world):
    options = ("--slots", "127", "--thread-engines", str(THREADS))
    for _ in range(PROGRAMS):
        server = world.stack(*world.program("engines.py"), "own", 7000, THREADS, options=options)
        world.wait_port(7000, process=server)

    def engines():
        (report,) = json.loads(world.admin("status", "--json").output())
        return report["engines"]

    until(lambda: len(engines()) == THREADS * PROGRAMS, 30, "every thread has its engine")
    listeners = [world.stack("/usr/bin/python3", "-c", LISTENER, world.STACK) for _ in range(2)]
    until(lambda: all("joined" in it.output() for it in listeners), 10, "both have joined")
    socks = [world.connect(7000) for _ in range(400)]
    for sock in socks:
        sock.sendall(b"who\n")
        assert sock.recv(100)
    with world.at_peer(), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(world.PEER))
        sock.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, struct.pack("b", 4))
        sock.sendto(b"to all", (GROUP, 7001))
    until(lambda: all("heard to all" in it.output() for it in listeners), 10, "both have heard it")
    for sock in socks:
        sock.close()

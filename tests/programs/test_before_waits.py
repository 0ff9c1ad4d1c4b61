"""What comes to a socket before its program waits on it for the first time, at ports of the range
from which an engine has those for outgoing connections: its frames reach an engine that has no
socket for them yet."""

import random
import signal
import socket

from harness import test
from harness.process import until

# A quarter of these is leased to the first engine.
FIRST, LAST = 40000, 40255
PORTS, COUNT, ROUNDS = 32, 4, 2


def send(world, address, port):
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with world.at_peer():
        datagrams, stream = (
            socket.socket(family, kind) for kind in (socket.SOCK_DGRAM, socket.SOCK_STREAM)
        )
    with datagrams:
        for number in range(COUNT):
            datagrams.sendto(b"%d" % number, (address, port))
    stream.settimeout(10)
    stream.connect((address, port))
    stream.sendall(b"stream")
    return stream


@test
def a_socket_at_an_outgoing_port_receives_what_came_before_its_first_wait(world):
    world.use_ipv6()
    world.stack_ns.sysctl("net.ipv4.ip_local_port_range", f"{FIRST} {LAST}")
    addresses = (world.STACK, world.STACK6)
    for _ in range(ROUNDS):
        ports = random.sample(range(FIRST, LAST + 1), PORTS)
        program = world.program("before_waits.py")
        server = world.stack(*program, COUNT, *ports, "--", *addresses)
        until(lambda: "bound" in server.output(), 10, "the sockets")
        names = [(address, port) for port in ports for address in addresses]
        streams = [send(world, *name) for name in names]
        server.signal(signal.SIGUSR1)
        lines = server.finish(60).splitlines()[1:]
        wanted = [f"{address} {port} {COUNT} stream" for address, port in names]
        missing = [line for line in lines if line not in wanted]
        assert lines == wanted, f"{len(missing)} of {len(wanted)}: {missing[:5]}"
        for stream in streams:
            stream.close()

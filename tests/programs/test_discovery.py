"""IP_MTU_DISCOVER of connections: which of their packets may be cut on their way."""

import socket
import struct

from harness import test

PORT = 7000
MODES = range(6)
WANT, DO = 1, 2
SYN_ACK = 0x12


class Wire:
    """The TCP packets that the stack sends, as the peer's interface sees them."""

    def __init__(self, world):
        self.world = world
        with world.at_peer():
            self.raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0800))
        self.raw.bind(("eth1", 0))
        self.raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        self.raw.setblocking(False)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.raw.close()

    def taken(self, port):
        """Those from or to a port: flags, length, DF and identification of each."""
        found = []
        try:
            while True:
                frame, sender = self.raw.recvfrom(1 << 17)
                if sender[2] == socket.PACKET_OUTGOING or frame[23] != socket.IPPROTO_TCP:
                    continue
                length, number, fragment = struct.unpack_from("!HHH", frame, 16)
                if port in struct.unpack_from("!HH", frame, 34):
                    found.append((frame[47], length, bool(fragment & 0x4000), number))
        except BlockingIOError:
            return found


def ask(client, line):
    client.sendall(line)
    lines = client.makefile("rb")
    value = int(lines.readline())
    assert len(lines.readline()) == 4000
    return value


def check(packets, has_df, what):
    assert any(length > 500 for _, length, _, _ in packets), (what, packets)
    for flags, _, df, _ in packets:
        assert df == (has_df or flags == SYN_ACK), (what, packets)
    if not has_df:
        numbers = [number for _, _, df, number in packets if not df]
        assert len(set(numbers)) == len(numbers), (what, packets)


@test
def packets_of_connections_may_be_cut_as_the_program_has_asked(world):
    server = world.stack(*world.program("discoverers.py"), PORT)
    world.wait_port(PORT, process=server)
    with world.at_peer():
        own = socket.create_server((world.peer_address, 7100))
    own.settimeout(10)
    # The server waits then. What comes before is acknowledged without its listener's option.
    with world.connect(PORT) as client:
        ask(client, b"get\n")
    with own, Wire(world) as wire:
        for mode in MODES:
            with world.connect(PORT + mode) as client:
                port = client.getsockname()[1]
                assert ask(client, b"get\n") == mode
                check(wire.taken(port), mode in (WANT, DO), f"accepted, {mode}")
                # From the next packet on.
                for later in (5 - mode, mode):
                    assert ask(client, b"set %d\n" % later) == later
                    packets = [it for it in wire.taken(port) if it[1] > 500]
                    check(packets, later in (WANT, DO), f"set to {later}")
                line = b"call %s 7100 %d\n" % (world.peer_address.encode(), mode)
                client.sendall(line)
                called, _ = own.accept()
                with called:
                    called.settimeout(10)
                    assert len(called.makefile("rb").readline()) == 4000
                    called.sendall(b"x")
                    assert int(client.makefile("rb").readline()) == mode
                    # Before the FIN: TIME-WAIT answers it with DF.
                    check(wire.taken(7100), mode in (WANT, DO), f"connected, {mode}")

"""An interface whose MTU changes under its programs: connections, new and old, and datagrams
follow."""

import hashlib
import json
import socket
import threading

from harness import test
from harness.process import until

# IPv4, TCP and its timestamps.
HEADERS = 52
LEN = 4 << 20


def set_mtu(world, mtu):
    for side in (world.peer_ns, world.stack_ns):
        side.ip("link", "set", "eth1", "mtu", str(mtu))


class Asker:
    def __init__(self, world):
        self.sock = world.connect(7000)
        self.lines = self.sock.makefile("rwb")

    def ask(self, line):
        self.lines.write(line)
        self.lines.flush()

    def mss(self):
        self.ask(b"mss\n")
        return int(self.lines.readline())

    def get(self, count):
        self.ask(b"get %d\n" % count)
        data = self.lines.read(count)
        assert data == b"g" * count, len(data)

    def put(self, count):
        data = bytes(range(256)) * (count // 256)
        self.ask(b"put %d\n" % count + data)
        assert self.lines.readline().strip().decode() == hashlib.sha256(data).hexdigest()

    def send_whole(self, count):
        self.ask(b"whole %d\n" % count)
        return self.lines.readline().strip().decode()

    def close(self):
        self.lines.close()
        self.sock.close()


def exchange_datagrams(world):
    with world.at_peer(), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.settimeout(5)
        for count in (100, 1150, 1400, 5000):
            data = b"%d " % count + b"x" * count
            sock.sendto(data, (world.address, 7000))
            assert sock.recv(100) == hashlib.sha256(data).digest()
            assert sock.recv(65536) == b"u" * count


def everything_follows(world, old, mtu):
    until(
        lambda: old.mss() == mtu - HEADERS,
        10,
        f"the segments of a running connection are for {mtu}",
    )
    for asker in (old, Asker(world)):
        asker.get(LEN)
        asker.put(LEN)
        assert asker.mss() == mtu - HEADERS
        if asker is not old:
            asker.close()
    exchange_datagrams(world)
    if world.mode != "kernel":
        report = json.loads(world.admin("status", "--json").output())[0]
        assert report["device"]["mtu"] == mtu and not report["device"]["trouble"], report["device"]


@test
def a_smaller_and_a_larger_mtu_are_followed(world):
    server = world.stack(*world.program("sized.py"), 7000)
    world.wait_port(7000, process=server)
    old = Asker(world)
    # The MSS that both ends agreed on at 1500 limits it.
    for mtu in (1500, 1200, 1500, 700, 1500):
        set_mtu(world, mtu)
        everything_follows(world, old, mtu)
    set_mtu(world, 9000)
    until(lambda: new_mss(world) == 9000 - HEADERS, 10, "new connections use the larger MTU")
    jumbo = Asker(world)
    with world.at_peer(), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.settimeout(5)
        sock.bind((world.peer_address, 7001))
        assert jumbo.send_whole(8972) == "sent"
        assert len(sock.recv(65536)) == 8972
        assert jumbo.send_whole(8973) == "EMSGSIZE"
    jumbo.get(LEN)
    jumbo.put(LEN)
    assert old.mss() == 1500 - HEADERS
    exchange_datagrams(world)


def new_mss(world):
    asker = Asker(world)
    try:
        return asker.mss()
    finally:
        asker.close()


@test
def transfers_go_on_while_the_mtu_changes(world):
    server = world.stack(*world.program("sized.py"), 7000)
    world.wait_port(7000, process=server)
    failures, is_over = [], threading.Event()

    def transfer(asker, way):
        try:
            while not is_over.is_set():
                way(asker, LEN)
        except Exception as error:
            failures.append(repr(error))

    askers = [Asker(world) for _ in range(2)]
    threads = [
        threading.Thread(target=transfer, args=it) for it in zip(askers, (Asker.get, Asker.put))
    ]
    for thread in threads:
        thread.start()
    for mtu in (1200, 1500, 900, 1500, 1200):
        set_mtu(world, mtu)
        is_over.wait(0.4)
    is_over.set()
    for thread in threads:
        thread.join(20)
    assert not failures and not any(thread.is_alive() for thread in threads), (
        failures,
        server.tail(),
    )
    until(lambda: askers[0].mss() == 1200 - HEADERS, 10, "the last MTU is followed")

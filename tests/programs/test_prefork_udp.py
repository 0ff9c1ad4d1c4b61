"""A UDP socket that its parent has used and several children receive from: each datagram is
received by one of them, once."""

import select
import socket
import threading
import time
from collections import Counter

from harness import test
from harness.process import until

PORT, PEER_PORT = 7380, 7381
FLOWS, TURNS, BURST = 40, 25, 5


class Flows:
    """Sockets at the peer, and the answers that they have had."""

    def __init__(self, world):
        self.to = (world.address, PORT)
        with world.at_peer():
            self.socks = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(FLOWS)]
        self.sent, self.answers, self.pids = set(), Counter(), Counter()

    def send(self, what):
        for number, sock in enumerate(self.socks):
            text = b"%s of %d" % (what, number)
            self.sent.add(text)
            sock.sendto(text, self.to)

    def hear(self, seconds):
        """Hears answers until all have come, or the time is over."""
        end = time.monotonic() + seconds
        while len(self.answers) < len(self.sent) and time.monotonic() < end:
            self.hear_some(0.1)

    def hear_some(self, seconds):
        for sock in select.select(self.socks, [], [], seconds)[0]:
            pid, _, text = sock.recv(2000).partition(b" ")
            assert text.endswith(b" of %d" % self.socks.index(sock)), text
            self.answers[text] += 1
            self.pids[int(pid)] += 1

    def check(self):
        self.hear_some(0.3)
        lost = sorted(self.sent - set(self.answers))
        assert not lost, f"{len(lost)} of {len(self.sent)} are lost: {lost[:5]}"
        assert set(self.answers) == self.sent, "an answer to nothing"
        twice = [text for text, count in self.answers.items() if count > 1]
        assert not twice, f"{len(twice)} were received twice: {twice[:5]}"


def echo(world):
    """Echoes the one datagram by which the parent uses its socket."""
    with world.at_peer():
        sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.bind((world.peer_address, PEER_PORT))
    sock.settimeout(20)

    def serve():
        with sock:
            data, sender = sock.recvfrom(100)
            sock.sendto(data, sender)

    threading.Thread(target=serve, daemon=True).start()


def each_datagram_is_received_once(world, how):
    echo(world)
    words = (how, PORT, world.peer_address, PEER_PORT)
    server = world.stack(*world.program("prefork_udp.py"), *words)
    until(lambda: "forked" in server.output(), 10, "the children")
    flows = Flows(world)
    for turn in range(TURNS):
        flows.send(b"turn %d" % turn)
        flows.hear(5)
    flows.check()
    for number in range(BURST):
        flows.send(b"burst %d" % number)
    flows.hear(10)
    flows.check()
    assert flows.pids.keys() <= {server.pid, *server.children()}, flows.pids
    assert len(flows.pids) > 1, f"one process alone has received: {flows.pids}"


@test
def children_that_wait_in_recv_receive_each_datagram_once(world):
    each_datagram_is_received_once(world, "recv")


@test
def children_that_wait_in_epoll_receive_each_datagram_once(world):
    each_datagram_is_received_once(world, "epoll")


@test
def children_that_wait_in_poll_receive_each_datagram_once(world):
    each_datagram_is_received_once(world, "poll")


@test
def children_and_their_parent_receive_each_datagram_once(world):
    each_datagram_is_received_once(world, "parent")

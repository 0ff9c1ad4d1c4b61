"""Datagrams on a link that is slower than the program that sends them."""

import contextlib
import socket
import threading
from pathlib import Path

from harness import test
from harness.net import command
from harness.world import PYTHON

PORT = 7000
SO_RCVBUFFORCE = 33

SENDER = """
import select, socket, sys, time
address, count, length, how = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
to = (address, 7000)
sock = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM)
sock.bind(("", 7100))
if how == "connected":
    sock.connect(to)
at_once = 1
if how == "joined":
    at_once = 10
    sock.setsockopt(socket.IPPROTO_UDP, 103, length)
full = 0
sock.setblocking(how not in ("nonblocking", "polling"))
for number in range(0, count, at_once):
    numbers = range(number, number + at_once)
    datagram = b"".join(it.to_bytes(4, "big") + bytes(length - 4) for it in numbers)
    while True:
        try:
            sock.send(datagram) if how == "connected" else sock.sendto(datagram, to)
            break
        except BlockingIOError:
            full += 1
            if how == "polling":
                poll = select.poll()
                poll.register(sock, select.POLLOUT)
                assert poll.poll(5000) == [(sock.fileno(), select.POLLOUT)]
            else:
                sock.setblocking(True)
                sock.sendto(datagram, to)
                sock.setblocking(False)
                break
    if number == 0:
        # The neighbour is known then.
        time.sleep(0.3)
print(full, flush=True)
if how == "ending":
    sys.exit()
sock.close()
again = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM)
again.bind(("", 7100))
sys.stdin.readline()
"""

FLOOD = """
import select, socket, sys, time
address, count, others = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
flood = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
other = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
other.sendto(b"first", (address, 7001))
time.sleep(0.3)
flood.setblocking(False)
has_sent = False
for number in range(count):
    while True:
        try:
            flood.sendto(bytes(1000), (address, 7000))
            break
        except BlockingIOError:
            if not has_sent:
                has_sent = True
                for _ in range(others):
                    other.sendto(bytes(1000), (address, 7001))
            select.select([], [flood], [], 5)
assert has_sent
sys.stdin.readline()
"""

RULED = """
import socket, sys, time
address = sys.argv[1]
sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
sock.settimeout(5)
def seconds(port):
    began = time.monotonic()
    for _ in range(100):
        for _ in range(20):
            sock.sendto(bytes(100), (address, port))
        sock.sendto(b"echo", (address, 7000))
        sock.recv(100)
    return time.monotonic() - began
seconds(7002)
print(seconds(7002), seconds(7001), flush=True)
sys.stdin.readline()
"""


@contextlib.contextmanager
def slow_link(world, rate):
    """The interface's queue holds more than a send buffer."""
    words = ["root", "tbf", "rate", rate, "burst", "20kb", "limit", "600kb"]
    command("tc", "-n", world.stack_ns.name, "qdisc", "replace", "dev", "eth1", *words)
    yield


def receiver(world, port, family=socket.AF_INET):
    with world.at_peer():
        sink = socket.socket(family, socket.SOCK_DGRAM)
    # The receiver may be late.
    sink.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 8 << 20)
    sink.bind(("", port))
    sink.settimeout(3)
    return sink


def dropped():
    """Frames that the kernel dropped because the queue of a processor was full, which is one for
    all links of the machine."""
    lines = Path("/proc/net/softnet_stat").read_text().splitlines()
    return sum(int(line.split()[1], 16) for line in lines)


def all_come(world, *words, attempts=3, **keywords):
    """Returns how often the sender found no room."""
    before = dropped()
    try:
        return all_come_once(world, *words, **keywords)
    except AssertionError:
        if attempts == 1 or dropped() == before:
            raise
    return all_come(world, *words, attempts=attempts - 1, **keywords)


def all_come_once(world, count, length, how="blocking", address=None, rate="16mbit"):
    family = socket.AF_INET6 if ":" in (address or "") else socket.AF_INET
    with slow_link(world, rate), receiver(world, PORT, family) as sink:
        to = address or world.peer_address
        sender = world.stack(PYTHON, "-c", SENDER, to, count, length, how, stdin=-1)
        try:
            receive_all(sink, count, length)
        except AssertionError:
            sender.kill()
            raise
        sender.child.stdin.close()
        return int(sender.finish(10))


def receive_all(sink, count, length):
    for number in range(count):
        try:
            datagram = sink.recv(65536)
        except TimeoutError:
            raise AssertionError(f"only {number} of {count} came") from None
        assert int.from_bytes(datagram[:4], "big") == number, f"one is lost before {number}"
        assert len(datagram) == length


@test
def datagrams_on_a_slow_link_are_not_lost(world):
    all_come(world, 1000, 1000)


@test
def datagrams_of_a_connected_socket_on_a_slow_link_are_not_lost(world):
    all_come(world, 1000, 1000, "connected")


@test
def a_sender_on_a_slow_link_finds_no_room(world):
    assert all_come(world, 3000, 1000, "nonblocking") > 0


@test
def a_sender_on_a_slow_link_polls_for_room(world):
    assert all_come(world, 3000, 1000, "polling") > 0


@test
def fragments_on_a_slow_link_are_not_lost(world):
    all_come(world, 60, 20_000)


@test
def joined_datagrams_on_a_slow_link_are_not_lost(world):
    all_come(world, 1000, 1000, "joined")


@test
def datagrams_on_a_slow_link_outlive_their_program(world):
    all_come(world, 900, 1000, "ending")


@test
def datagrams_on_a_slow_link_are_not_lost_over_ipv6(world):
    world.use_ipv6()
    all_come(world, 1000, 1000, address=world.PEER6)


@test
def a_sender_that_floods_a_slow_link_leaves_room_to_others(world):
    count, others = 2000, 30
    with (
        slow_link(world, "16mbit"),
        receiver(world, PORT) as sink,
        receiver(world, PORT + 1) as other,
    ):
        sender = world.stack(PYTHON, "-c", FLOOD, world.peer_address, count, others, stdin=-1)
        assert other.recv(100) == b"first"
        places = []

        def receive():
            for _ in range(others):
                other.recv(2000)
                places.append(came)

        came = 0
        thread = threading.Thread(target=receive)
        thread.start()
        for _ in range(count):
            sink.recv(2000)
            came += 1
        thread.join()
        sender.child.stdin.close()
        sender.finish(10)
        assert len(places) == others and max(places) < count // 2, places


@test
def a_rule_that_drops_what_leaves_costs_other_datagrams_nothing(world):
    namespace = world.stack_ns.name
    # Loads the destination port and compares it; 2 = drop, -1 = go on.
    code = "4,40 0 0 36,21 0 1 7001,6 0 0 2,6 0 0 4294967295,"
    rule = ["egress", "bpf", "da", "bytecode", code]
    command("tc", "-n", namespace, "qdisc", "add", "dev", "eth1", "clsact")
    command("tc", "-n", namespace, "filter", "add", "dev", "eth1", *rule)
    with receiver(world, PORT) as sink, receiver(world, PORT + 2):
        sender = world.stack(PYTHON, "-c", RULED, world.peer_address, stdin=-1)
        for _ in range(300):
            datagram, peer = sink.recvfrom(100)
            sink.sendto(datagram, peer)
        sender.child.stdin.close()
        free, ruled = (float(word) for word in sender.finish(10).split())
        assert ruled < 2 * free + 0.4, f"{ruled} s, {free} s without the rule"

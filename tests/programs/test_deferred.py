"""TCP_DEFER_ACCEPT of a listener on which nobody has waited yet."""

import time

from harness import test
from harness.process import until
from harness.world import PYTHON

PORT = 7000

SERVER = """
import select, socket, sys, time
family, moment = int(sys.argv[1]), sys.argv[2]
listener = socket.socket(socket.AF_INET6 if family == 6 else socket.AF_INET)
def defer(seconds):
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_DEFER_ACCEPT, seconds)
if moment == "before":
    defer(10)
listener.bind(("", 7000))
listener.listen()
if moment == "after":
    defer(10)
elif moment == "undone":
    defer(10)
    defer(0)
print("listens", flush=True)
sys.stdin.readline()
poll = select.poll()
poll.register(listener, select.POLLIN)
print("waits", flush=True)
print("comes" if poll.poll(700) else "nothing", flush=True)
sock, _ = listener.accept()
print(sock.recv(100, socket.MSG_DONTWAIT if moment != "undone" else 0).decode(), flush=True)
print(listener.getsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP), flush=True)
"""


def outcome(world, moment, family=4):
    """Returns what the server has seen before there was data, and then."""
    if family == 6:
        world.use_ipv6()
    server = world.stack(PYTHON, "-c", SERVER, family, moment, stdin=-1)
    until(lambda: "listens" in server.output(), 10, "the server listens")
    address = world.STACK6 if family == 6 else world.address
    with world.connect(PORT, address=address) as sock:
        server.child.stdin.write(b"\n")
        server.child.stdin.flush()
        until(lambda: len(server.output().split()) == 3, 10, "the wait is over")
        sock.sendall(b"question")
        until(lambda: len(server.output().split()) == 5, 10, "the connection is accepted")
    return server.output().split()[2:]


@test
def a_connection_before_the_first_wait_is_deferred(world):
    assert outcome(world, "before") == ["nothing", "question", "1"]


@test
def a_connection_before_the_first_wait_is_deferred_over_ipv6(world):
    assert outcome(world, "before", 6) == ["nothing", "question", "1"]


@test
def deferral_begins_after_listen_too(world):
    assert outcome(world, "after") == ["nothing", "question", "1"]


@test
def deferral_that_was_taken_back_has_no_effect(world):
    assert outcome(world, "undone") == ["comes", "question", "1"]


LATER = """
import select, socket, sys
first, second = map(int, sys.argv[1:3])
listener = socket.socket()
def defer(seconds):
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_DEFER_ACCEPT, seconds)
defer(first)
listener.bind(("", 7000))
listener.listen()
print("listens", flush=True)
sys.stdin.readline()
defer(second)
print("changed", flush=True)
sys.stdin.readline()
poll = select.poll()
poll.register(listener, select.POLLIN)
while poll.poll(700):
    print(listener.accept()[1][1], flush=True)
print("no more", flush=True)
"""


def accepted_without_data(world, first, second):
    """Two connections, between which the time of deferral changes: which of them are accepted."""
    server = world.stack(PYTHON, "-c", LATER, first, second, stdin=-1)

    def go_on(word):
        server.child.stdin.write(b"\n")
        server.child.stdin.flush()
        until(lambda: word in server.output(), 10, word)

    until(lambda: "listens" in server.output(), 10, "the server listens")
    with world.connect(PORT) as one:
        go_on("changed")
        # The keeper looks at the sockets at most every 2 ms.
        time.sleep(0.01)
        with world.connect(PORT) as two:
            go_on("no more")
            ports = [sock.getsockname()[1] for sock in (one, two)]
    return [str(port) in server.output().split() for port in ports]


@test
def deferral_that_begins_after_a_connection_has_an_effect_on_the_next_one(world):
    assert accepted_without_data(world, 0, 10) == [True, False]


@test
def deferral_that_ends_after_a_connection_has_no_effect_on_the_next_one(world):
    assert accepted_without_data(world, 10, 0) == [False, True]

"""A datagram of a socket that several processes have is whoever's that waits, also if it came for
one that is busy with another."""

import socket
import time

from harness import test
from harness.process import until

PORT, ROUNDS = 7395, 3
GROUP, BROADCAST = "239.7.7.8", "10.77.0.255"


def begun(world, how):
    """Returns the numbers of the workers, and a socket at the peer."""
    server = world.stack(*world.program("one_queue.py"), how, PORT, world.address)
    workers = {int(pid) for pid in server.words_after("workers")}
    time.sleep(0.3)
    with world.at_peer():
        sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
    own = socket.inet_aton(world.peer_address)
    sock.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, own)
    sock.settimeout(10)
    return workers, sock


def takes_turns(world, how, to=None):
    """Each of two datagrams of one client, which come together, is another process's."""
    to = (to or world.address, PORT)
    workers, sock = begun(world, how)
    sent = set()
    for number in range(ROUNDS):
        together = {b"%d %d" % (number, which) for which in range(2)}
        for datagram in together:
            sock.sendto(datagram, to)
        answers = [sock.recv(2000).partition(b" ") for _ in together]
        assert {int(pid) for pid, _, _ in answers} == workers, (workers, answers)
        assert {datagram for _, _, datagram in answers} == together, answers
        sent |= together
    # More than there are processes: none is lost, and both take their part.
    for number in range(6):
        sock.sendto(b"%d" % number, to)
    answers = [sock.recv(2000).partition(b" ") for _ in range(6)]
    assert sorted(int(datagram) for _, _, datagram in answers) == list(range(6)), answers
    shares = [[int(pid) for pid, _, _ in answers].count(pid) for pid in workers]
    assert min(shares) >= 2, shares


@test
def forked_processes_take_turns(world):
    takes_turns(world, "fork")


@test
def forked_processes_that_wait_by_epoll_take_turns(world):
    takes_turns(world, "epoll")


@test
def processes_that_have_a_socket_by_a_message_take_turns(world):
    takes_turns(world, "message")


@test
def a_program_and_the_one_that_it_has_started_take_turns(world):
    takes_turns(world, "program")


@test(modes=("kernel", "instance"))
def forked_processes_take_turns_with_datagrams_to_a_group(world):
    takes_turns(world, "group", GROUP)


@test(modes=("kernel", "instance"))
def forked_processes_take_turns_with_broadcasts(world):
    takes_turns(world, "fork", BROADCAST)


@test(modes=("kernel", "instance"))
def each_socket_in_a_group_has_its_own_copy(world):
    _, sock = begun(world, "groups")
    for number in range(4):
        sock.sendto(b"%d" % number, (GROUP, PORT))
    answers = sorted(tuple(map(int, sock.recv(2000).split())) for _ in range(8))
    assert answers == [(of, number) for of in range(2) for number in range(4)], answers
    sock.settimeout(1.5)
    try:
        assert not sock.recv(2000), "one answer more"
    except TimeoutError:
        pass

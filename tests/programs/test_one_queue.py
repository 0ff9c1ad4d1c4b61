"""A datagram of a socket that several processes have is whoever's that waits, also if it came for
one that is busy with another."""

import socket
import time

from harness import test
from harness.process import until

PORT, ROUNDS = 7395, 3


def takes_turns(world, how):
    """Each of two datagrams of one client, which come together, is another process's."""
    server = world.stack(*world.program("one_queue.py"), how, PORT)
    until(lambda: "workers" in server.output(), 10, "the workers")
    time.sleep(0.3)
    workers = {int(pid) for pid in server.output().split()[1:3]}
    with world.at_peer():
        sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.settimeout(10)
    sent = set()
    for number in range(ROUNDS):
        together = {b"%d %d" % (number, which) for which in range(2)}
        for datagram in together:
            sock.sendto(datagram, (world.address, PORT))
        answers = [sock.recv(2000).partition(b" ") for _ in together]
        assert {int(pid) for pid, _, _ in answers} == workers, (workers, answers)
        assert {datagram for _, _, datagram in answers} == together, answers
        sent |= together
    # More than there are processes: none is lost, and both take their part.
    for number in range(6):
        sock.sendto(b"%d" % number, (world.address, PORT))
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

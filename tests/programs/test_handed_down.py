"""A program that another one has started serves the sockets that it has from it."""

import socket

from harness import test
from harness.process import until

PORT = 7396


def said(world, port):
    with world.connect(port, 5) as sock:
        sock.settimeout(5)
        return sock.recv(100)


def are_served(world, how):
    server = world.stack(*world.program("handed_down.py"), how, PORT)
    (own,) = server.words_after("own")
    by = said(world, PORT)
    assert int(by) != int(own), by
    assert said(world, PORT + 1) == by
    with world.at_peer():
        sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.settimeout(5)
    sock.sendto(b" datagram", (world.address, PORT))
    assert sock.recv(100) == by + b" datagram"


@test
def sockets_of_a_program_that_starts_another_by_posix_spawn(world):
    are_served(world, "posix_spawn")


@test
def sockets_of_a_program_that_starts_another_with_one_as_its_input(world):
    are_served(world, "stdin")


@test
def sockets_of_a_program_that_starts_another_by_a_shell(world):
    are_served(world, "system")


@test
def sockets_of_a_program_that_starts_another_by_popen(world):
    are_served(world, "popen")

"""Processes that write to one connection in turn: their bytes arrive in the order of the writes."""

import time

from harness import test

ROUNDS = 60
MUCH = 3_000_000


def written(world, way, port, pause=0):
    server = world.stack(*world.program("in_turn.py"), world.address, port)
    world.wait_port(port, process=server)
    data = b""
    with world.connect(port, seconds=20) as sock:
        sock.sendall(way.encode() + b"\n")
        time.sleep(pause)
        while chunk := sock.recv(65536):
            data += chunk
    server.stop()
    return data


def are_in_turn(world, way, port):
    words = (f"{who}{turn} " for turn in range(ROUNDS) for who in "cp")
    expected = "".join(words).encode()
    data = written(world, way, port)
    assert data == expected, f"{way}: {data}"


@test
def bytes_of_a_child_that_has_ended_are_before_those_of_its_parent(world):
    are_in_turn(world, "ended", 7800)


@test
def bytes_of_a_child_that_says_so_are_before_those_of_its_parent(world):
    are_in_turn(world, "told", 7801)


@test
def bytes_of_a_child_are_before_those_of_a_later_one(world):
    are_in_turn(world, "siblings", 7802)


@test
def bytes_of_programs_that_follow_each_other_are_in_order(world):
    are_in_turn(world, "programs", 7803)


@test
def bytes_of_a_child_are_before_those_of_a_file(world):
    are_in_turn(world, "file", 7804)


@test
def bytes_of_a_child_arrive_before_its_parent_shuts_the_direction_down(world):
    for port in range(7805, 7810):
        data = written(world, "shut", port, 0.05)
        assert data == b"c" * 150_000, f"{len(data)} bytes"


@test
def bytes_of_a_child_that_find_no_room_are_before_those_of_its_parent(world):
    for port, way in enumerate(("much", "polled"), 7810):
        data = written(world, way, port, 0.3)
        assert data == b"c" * MUCH + b"end", f"{way}: {len(data)} bytes, {data.find(b'end')}"

"""What one process has written leaves before the end of the direction that another one asks for."""

import subprocess
import time

from harness import test
from harness.process import until
from harness.world import PROGRAMS, PYTHON

PORT = 7000
# Longer than any call waits for room.
PAUSE_S = 1.5


def shut_by(world, who, then):
    words = [PYTHON, PROGRAMS / "shuts_behind.py", PORT, who, then]
    server = world.stack(*words, stdin=subprocess.PIPE)
    until(lambda: "listening" in server.output(), 10, "the server listens")
    with world.connect(PORT) as sock:
        until(lambda: "then" in server.output(), 20, f"it is shut down\n{server.tail()}")
        time.sleep(PAUSE_S)
        sock.settimeout(5)
        count = 0
        while piece := sock.recv(1 << 16):
            count += len(piece)
    lines = server.output().split("\n")
    assert f"wrote {count}" in lines, f"{count} have come of {lines}"
    assert "in time" in lines and "then EPIPE" in lines, lines


@test
def an_owner_shuts_down_behind_a_child_whose_bytes_find_no_room(world):
    shut_by(world, "owner", "stays")


@test
def a_child_shuts_down_behind_another_whose_bytes_find_no_room(world):
    shut_by(world, "sibling", "stays")


@test
def a_child_shuts_down_behind_its_own_bytes_that_find_no_room(world):
    shut_by(world, "writer", "stays")


@test
def an_owner_that_has_shut_down_ends_before_a_childs_bytes_have_left(world):
    shut_by(world, "owner", "ends")

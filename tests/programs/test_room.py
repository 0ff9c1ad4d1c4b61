"""Room in the send buffer, as events tell of it."""

import socket

from harness import test


@test
def a_sender_of_datagrams_hears_of_new_room(world):
    with world.at_peer(), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sink:
        sink.bind((world.peer_address, 7009))
        said = world.stack(*world.program("fills.py"), world.peer_address, 7009).finish(30)
    ways = [f"{way} {segments} goes on" for segments in (1, 10) for way in ("alone", "beside")]
    assert said.splitlines() == ways, said

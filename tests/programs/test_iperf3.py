"""iperf3 in both directions and both roles."""

import json

from harness import test
from harness.process import until

ONE_MBIT = 1e6


def measure(world, server_on, client_on, address, *more):
    # `-1` ends the server after one test, so its port cannot be tried: wait for its output.
    server = server_on("iperf3", "-s", "-1", "-p", 5201, "--forceflush")
    until(
        lambda: "listening" in server.output() or not server.is_running(), 10, "iperf3 -s listens"
    )
    client = client_on("iperf3", "-c", address, "-p", 5201, "-t", 2, "-J", *more)
    text = client.finish(30)
    result = json.loads(text)
    assert "error" not in result, result.get("error")
    server.finish(10)
    return result["end"]


def assert_moved(end):
    received = end["sum_received"]
    assert received["bits_per_second"] > 100 * ONE_MBIT, received
    # Bytes that the sender counts may still be under way when the test ends.
    assert received["bytes"] <= end["sum_sent"]["bytes"] * 1.01 + 10_000_000


@test
def server_on_the_stack_receives(world):
    assert_moved(measure(world, world.stack, world.peer, world.address))


@test
def server_on_the_stack_sends(world):
    assert_moved(measure(world, world.stack, world.peer, world.address, "-R"))


@test
def client_on_the_stack_sends(world):
    assert_moved(measure(world, world.peer, world.stack, world.peer_address))


@test
def client_on_the_stack_receives(world):
    assert_moved(measure(world, world.peer, world.stack, world.peer_address, "-R"))


@test
def four_streams_and_both_directions_at_once(world):
    assert_moved(measure(world, world.stack, world.peer, world.address, "-P", 4))
    end = measure(world, world.stack, world.peer, world.address, "--bidir")
    assert end["sum_received"]["bytes"] > 0 and end["sum_received_bidir_reverse"]["bytes"] > 0


@test
def udp_arrives(world):
    # A larger buffer than the default, which holds 50 to 80 ms of this: a busy machine lets a
    # reader wait longer, on the kernel too.
    flow = ("-u", "-b", "20M", "-w", "200K")
    end = measure(world, world.stack, world.peer, world.address, *flow)
    assert end["sum"]["lost_percent"] < 5, end["sum"]
    end = measure(world, world.peer, world.stack, world.peer_address, *flow)
    assert end["sum"]["lost_percent"] < 5, end["sum"]

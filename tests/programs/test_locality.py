"""Whether connections stay on their engine, and what decides it: `slipstack locality`, `status`,
and the line of `run`."""

import json

from harness import test
from harness.process import until


def locality(world):
    """The table's rows, summed: an instance has one engine, a program with threads several."""
    rows = json.loads(world.admin("locality", "--json").finish())
    numbers = [
        name
        for name, value in rows[0].items()
        if isinstance(value, int) and name not in ("engine", "pid")
    ]
    return len(rows), {name: sum(row[name] for row in rows) for name in numbers}


def since(world, before):
    sums = locality(world)[1]
    return {name: count - before[name] for name, count in sums.items()}


def after_one(world):
    """Returns the sums once the program serves: until it waits, the keeper makes its connections,
    which then move in."""
    world.wait_port(7000)
    served(world, 1)
    return locality(world)[1]


def served(world, times, at_once=1):
    """Asks over connections, so many of which are open at a time."""
    for _ in range(times // at_once):
        clients = [world.connect(7000) for _ in range(at_once)]
        for client in clients:
            client.sendall(b"who\n")
            assert client.recv(100)
        for client in clients:
            client.close()


@test(modes=("inprocess",))
def connections_that_move_between_threads_are_counted_where_they_came_from_and_went_to(world):
    world.stack(*world.program("engines.py"), "hands", 7000, 4)
    before = after_one(world)
    served(world, 80, at_once=40)
    until(lambda: since(world, before)["moved_in"] > 0, 5, "a connection has moved")
    count, sums = locality(world)[0], since(world, before)
    # The accepting thread has its own engine, or that of the thread that waited first.
    assert count in (4, 5), count
    assert sums["accepted"] >= 80, sums
    # One that the keeper had made may come meanwhile.
    assert abs(sums["moved_in"] - sums["moved_out"]) <= 2 < sums["moved_in"], sums
    assert sums["lost"] == sums["refused"] == 0, sums
    lines = world.admin("locality").finish().splitlines()
    assert (
        lines[0].split()[:4] == ["ENGINE", "PID", "PROGRAM", "ACCEPTED"] and len(lines) == count + 1
    ), lines


@test(modes=("inprocess", "instance"))
def every_connection_that_another_thread_serves_moves(world):
    world.stack(*world.program("engines.py"), "hands", 7000, 2)
    before = after_one(world)
    served(world, 24, at_once=24)
    sums = since(world, before)
    # A thread that waited first has the engine of the one that accepts: its half stays.
    assert sums["accepted"] == 24 and sums["moved_in"] >= 12, sums
    if world.mode == "inprocess":
        assert abs(sums["moved_in"] - sums["moved_out"]) <= 2, sums


@test(modes=("inprocess", "instance"))
def connections_of_one_thread_stay_and_take_the_places_of_earlier_ones(world):
    world.stack(*world.program("engines.py"), "own", 7000, 1)
    before = after_one(world)
    served(world, 60)
    sums = since(world, before)
    assert sums["accepted"] >= 60 and sums["moved_in"] == sums["moved_out"] == 0, sums
    assert 30 < sums["pool"] <= sums["accepted"], sums


@test(modes=("inprocess", "instance"))
def status_names_the_mechanisms_in_force(world):
    world.stack(*world.program("engines.py"), "own", 7000, 1)
    world.wait_port(7000)
    (report,) = json.loads(world.admin("status", "--json").finish())
    told = report["device"]["mechanisms"]
    for word in ("listeners:", "outgoing connections:", "kernel:"):
        assert any(line.startswith(word) for line in told), told
    assert not any(line.startswith(("filter:", "kni:", "forwarding:")) for line in told), told
    world.admin("ipfw", "add", "100", "count", "ip", "from", "any", "to", "any").finish()
    text = world.admin("status").finish()
    assert "filter: 1 rule\n" in text, text


@test(modes=("instance",))
def one_processor_for_program_and_instance_is_reported(world):
    world.start_instance("pinned", "--cores", "1")
    words = ["run", "--run-dir", world.run_dir, "--instance", "pinned", "--cores"]
    for core, is_told in (("1", True), ("0", False)):
        started = world.beside(world.slipstack, *words, core, "--", "true")
        started.finish()
        assert ("processor 1 alone" in started.errors()) == is_told, started.errors()


@test(modes=("inprocess", "instance"))
def programs_of_one_device_send_each_other_large_frames(world):
    """Over either family; 24 MiB would be 17,000 segments."""
    world.use_ipv6()
    program = world.program("large_frames.py")
    world.stack(*program, "take", 7000)
    world.wait_port(7000)

    def frames():
        counted = json.loads(world.admin("nstat", "-a", "-s", "--json").finish())
        return counted["slipstack"].get("TcpInSegs", 0)

    before = frames()
    for address in (world.STACK, world.STACK6):
        giver = world.stack(*program, "give", address, 7000)
        assert giver.wait(30) == 0, giver.tail()
        given, taken = giver.output().split()
        assert given == taken, giver.tail()
    # The counters of an engine that has ended are gone with it: these are the receiver's.
    assert 0 < frames() - before < 2 * 5000, (before, frames())

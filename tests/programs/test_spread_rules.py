"""Which engine gets a new flow: rules beside the even hash."""

from collections import Counter

from harness import test
from test_engines import engines, serves, who
from harness.process import until


def served(world, threads, *options):
    """Which thread has each of many connections, one after the other."""
    server = world.stack(
        *world.program("engines.py"),
        "own",
        7000,
        threads,
        options=("--thread-engines", str(threads), *options)
    )
    world.wait_port(7000, process=server)
    until(lambda: engines(world, server) == threads, 10, "every thread has its engine")
    found = Counter()
    for _ in range(200):
        with world.connect(7000) as sock:
            found[who(sock)] += 1
    assert sum(serves(world, 16).values()) == 16
    return sorted(found.values(), reverse=True)


@test(modes=("inprocess",))
def a_port_has_one_engine(world):
    first, *_ = served(world, 4, "--spread", "port")
    assert first > 180, first
    assert "a TCP port has one engine" in world.admin("status").output()


@test(modes=("inprocess",))
def engines_have_their_shares(world):
    counts = served(world, 3, "--spread", "shares", "--spread-shares", "8,1,1")
    assert counts[0] > 120 and sum(counts) == 200, counts
    assert "in the shares [8, 1, 1]" in world.admin("status").output()


@test(modes=("inprocess",))
def shares_without_the_rule_are_refused(world):
    program = world.stack("true", options=("--spread-shares", "1,2"))
    assert program.wait(10) != 0
    assert "go together" in program.errors(), program.errors()

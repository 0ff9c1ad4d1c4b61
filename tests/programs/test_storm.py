"""A thousand changes of the network a second under load, with keepers killed in between: the old or
the new network everywhere, no third, and no connection lost."""

import json
import os
import signal
import threading
import time

from harness import test
from harness.process import until
from harness.storm import Storm, Visitor, address

SECONDS = float(os.environ.get("SLIPSTACK_STORM_SECONDS", 3))
CONNECTIONS = 6


def keeper(world):
    told = world.admin("status", "--json").output()
    return json.loads(told)[0] if told.strip() else {}


def kill_keeper(world):
    victim = keeper(world)["keeper_pid"]
    os.kill(victim, signal.SIGKILL)
    succeeded = lambda: keeper(world).get("keeper_pid", victim) != victim
    until(lambda: succeeded() and keeper(world).get("standby_pid"), 10, "there is a successor")


def is_served(world, ip):
    try:
        with world.connect(8000, 0.5, address=ip) as client:
            client.sendall(b"who\n")
            return bool(client.makefile().readline())
    except OSError:
        return False


@test(modes=("inprocess", "instance"), timeout=60 + SECONDS)
def a_thousand_changes_a_second_are_each_applied_whole_or_not_at_all(world):
    server = world.stack(*world.program("dual_echo.py"), 8000)
    world.wait_port(8000, process=server)
    over = threading.Event()
    visitors = [Visitor(world, 8000, over) for _ in range(CONNECTIONS)]
    for visitor in visitors:
        visitor.start()
    storm = Storm(world)
    began = time.monotonic()
    storm.start()
    while time.monotonic() - began < SECONDS and not storm.is_over.is_set():
        time.sleep(SECONDS / 3)
        kill_keeper(world)
    spent = time.monotonic() - began
    is_there = storm.end()
    over.set()
    for visitor in visitors:
        visitor.join(10)
        assert visitor.failure is None and visitor.answers > 10, visitor.failure
    assert storm.made > 1000 * spent / 4 and storm.seen > 10, (storm.made, storm.seen, spent)
    # Engines and the wire agree with the last keeper.
    until(lambda: is_served(world, address(0)) == is_there, 5, "the engine has the last network")
    told = f"{storm.made} changes, {storm.lost} unanswered, {storm.seen} looks, {spent:.1f} s"
    print(told)

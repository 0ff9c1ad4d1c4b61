"""Programs in containers: a namespace without the host's /run, several stacks in one namespace."""

import json
import os
import socket
from pathlib import Path

from harness import test
from harness.process import until

# As a container runtime does: nothing of the host's /run is visible.
FRESH_RUN = 'mount --make-rprivate / && mount -t tmpfs none /run && exec "$@"'


class Container:
    """A mount namespace with its own /run, in the stack's network namespace."""

    def __init__(self, world):
        self.world = world
        words = ["unshare", "--mount", "sh", "-c", FRESH_RUN, "sh", "sleep", "60"]
        self.init = world.process([*world.stack_ns.prefix(), *words])
        # The shell has become what it was to start.
        name = Path(f"/proc/{self.init.pid}/comm")
        until(lambda: name.read_text() == "sleep\n", 5, "the container has begun")

    def start(self, *words):
        inside = ["nsenter", "--target", self.init.pid, "--mount", "--net"]
        words = [str(word) for word in (*inside, *words)]
        return self.world.process(words, env={"XDG_RUNTIME_DIR": ""})

    def slipstack(self, *words):
        return self.start(self.world.slipstack, *words)

    def told(self, *words):
        return self.slipstack(*words).finish(20)


def ready(started, sign):
    until(lambda: sign in started.errors() + started.output() or not started.is_running(), 10, sign)
    assert started.is_running(), started.tail()


def is_open(address, port):
    try:
        socket.create_connection((address, port), 1).close()
        return True
    except OSError:
        return False


def echo(address, port, namespace, own):
    with namespace.inside():
        until(lambda: is_open(address, port), 10, f"{address} port {port} is open")
    with namespace.inside(), socket.create_connection((address, port), 5) as asker:
        asker.sendall(b"who\n")
        told = asker.makefile().readline().strip()
    assert told.endswith(own), told


@test(modes=("inprocess", "instance"))
def a_container_needs_nothing_of_the_hosts_run(world):
    before = sorted(os.listdir("/run/slipstack")) if os.path.isdir("/run/slipstack") else None
    container = Container(world)
    device = ["--if", "eth1", "--ip", f"{world.STACK}/24", "--gw", world.PEER]
    if world.mode == "instance":
        ready(container.slipstack("instance", "--name", "c", *device), "c")
        device = ["--instance", "c"]
    servers = [
        container.slipstack("run", *device, "--", *world.program("dual_echo.py"), port)
        for port in (7000, 7001)
    ]
    for server, port in zip(servers, (7000, 7001)):
        ready(server, "is reached at")
        world.wait_port(port)
        echo(world.STACK, port, world.peer_ns, world.PEER)
    (report,) = json.loads(container.told("status", "--json"))
    assert report["device"]["interface"] == "eth1", report["device"]
    # From outside, in the same network namespace, nothing of it is visible.
    outside = world.process(
        [*world.stack_ns.prefix(), str(world.slipstack), "status", "--json"],
        env={"XDG_RUNTIME_DIR": ""},
    )
    assert json.loads(outside.finish(20) or "[]") == []
    after = sorted(os.listdir("/run/slipstack")) if os.path.isdir("/run/slipstack") else None
    assert before == after, (before, after)


@test(modes=("inprocess", "instance"))
def two_stacks_on_two_interfaces_run_at_the_same_time(world):
    """Each has its keeper, addresses and programs; the end of one is none of the other's."""
    world.use_second_pair()
    ways = [
        ("eth1", 7000, world.STACK, world.PEER, world.peer_ns),
        ("eth2", 7001, world.STACK_B, world.PEER_B, world.peer_b_ns),
    ]
    container, servers = Container(world), []
    for name, port, own, gateway, _ in ways:
        device = ["--if", name, "--ip", f"{own}/24", "--gw", gateway]
        if world.mode == "instance":
            ready(container.slipstack("instance", "--name", f"on-{name}", *device), f"on-{name}")
            device = ["--instance", f"on-{name}"]
        server = container.slipstack("run", *device, "--", *world.program("dual_echo.py"), port)
        ready(server, "is reached at")
        servers.append(server)
    for _, port, own, gateway, namespace in ways * 2:
        echo(own, port, namespace, gateway)
    reports = json.loads(container.told("status", "--json"))
    assert sorted(it["device"]["interface"] for it in reports) == ["eth1", "eth2"]
    servers[0].stop()
    echo(world.STACK_B, 7001, world.peer_b_ns, world.PEER_B)

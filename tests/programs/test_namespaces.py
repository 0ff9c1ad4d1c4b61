"""Programs that enter another network namespace: sockets that they make there are the kernel's of
that namespace, all others stay on the stack."""

import socket
import subprocess
import threading

from harness import test
from harness.process import until
from harness.world import PROGRAMS

MODES = ("kernel", "inprocess", "instance")
PORT = 7300
OTHER = "10.79.0.9"


class Other:
    """A namespace beside the stack's, in which the peer's address is somebody else's."""

    def __init__(self, world):
        self.world = world
        self.namespace = world._namespace("o")
        for address in (OTHER, world.PEER):
            self.namespace.ip("addr", "add", f"{address}/32", "dev", "lo")
        # An interface with the number of the stack's.
        with world.stack_ns.inside():
            index = socket.if_nametoindex("eth1")
        words = f"link add sham index {index} type veth peer name sham2 index 1000"
        self.namespace.ip(*words.split())
        self.answer(world.peer_ns, "peer")
        self.answer(self.namespace, "other")

    def answer(self, namespace, name):
        """Says `name` to each caller of ports 9000 (TCP) and 9001 (UDP) there."""
        with namespace.inside():
            streams = socket.create_server((self.world.PEER, 9000))
            datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            datagrams.bind((self.world.PEER, 9001))

        def greet():
            while True:
                caller = streams.accept()[0]
                caller.sendall(name.encode())
                caller.close()

        def reply():
            while True:
                _, whose = datagrams.recvfrom(100)
                datagrams.sendto(name.encode(), whose)

        for run in (greet, reply):
            threading.Thread(target=run, daemon=True).start()

    def heard(self, port):
        """What a listener says to a caller at home and in the other namespace."""
        told = []
        for namespace, address in (
            (self.world.peer_ns, self.world.address),
            (self.namespace, OTHER),
        ):
            with namespace.inside():
                try:
                    with socket.create_connection((address, port), 5) as caller:
                        told.append(caller.makefile().read())
                except ConnectionRefusedError:
                    told.append("")
        return told


def started(world, how, *words):
    program = world.folder / "namespaces"
    source = PROGRAMS / "namespaces.c"
    subprocess.run(["gcc", "-Wall", "-pthread", "-o", program, source], check=True)
    other = Other(world)
    run = world.stack(program, how, other.namespace.path, PORT, *words)
    world.wait_port(PORT, process=run)
    return other, run


def expect(other, run, where):
    """Callers of each port, counted from the first, reach a listener in these namespaces."""
    for number, names in where.items():
        wanted = [name if name in names else "" for name in ("home", "other")]
        until(
            lambda number=number, wanted=wanted: other.heard(PORT + number) == wanted,
            5,
            f"port {number}: {other.heard(PORT + number)} instead of {wanted}\n{run.tail()}",
        )


def told(run):
    """The lines that the program has written, by their beginnings."""
    until(lambda: "ready" in run.output(), 10, f"the program is ready\n{run.tail()}")
    return dict(line.split(":", 1) for line in run.output().splitlines() if ":" in line)


def listed(*addresses):
    addresses = " ".join(["127.0.0.1", *addresses])
    return f" {addresses} requested {addresses}"


def threads(world, how):
    other, run = started(world, how)
    said = told(run)
    here, there = listed(world.address), listed(OTHER, world.PEER)
    assert (said["list other"], said["list returned"]) == (there, here), run.output()
    assert (said["call other"], said["ask other"]) == (" other", " other"), run.output()
    assert (said["call returned"], said["ask returned"]) == (" peer", " peer"), run.output()
    for how in ("", " by number"):
        asked = f" lo=127.0.0.1 eth1={world.address} eth1 {world.address} sham No such device"
        assert said[f"socket of home{how}"] == asked, run.output()
        asked = f" lo=127.0.0.1 lo={OTHER} lo={world.PEER} eth1 No such device"
        asked += " sham Cannot assign requested address"
        assert said[f"socket of other{how}"] == asked, run.output()
    home, away = ("home",), ("other",)
    expect(
        other,
        run,
        {0: home + away, 1: away, 2: away, 3: home, 4: home, 5: home, 6: home},
    )


@test(modes=MODES)
def a_thread_enters_a_namespace_and_comes_back(world):
    threads(world, "threads")


@test(modes=MODES)
def a_thread_enters_a_namespace_before_anything_is_waited_for(world):
    threads(world, "first")


@test(modes=MODES)
def a_child_in_a_namespace_starts_a_program_and_becomes_one(world):
    other, run = started(world, "family")
    until(lambda: run.output().count("ready") == 3, 10, f"all are ready\n{run.tail()}")
    said = told(run)
    assert said["list new program"] == listed(OTHER, world.PEER), run.output()
    assert (said["call new program"], said["ask new program"]) == (" other", " other")
    home, away = ("home",), ("other",)
    where = {0: home, 1: away, 2: home, 3: away, 4: home, 5: (), 6: home, 7: home, 8: away}
    expect(other, run, where)


@test(modes=MODES)
def children_enter_namespaces_of_their_own(world):
    other, run = started(world, "own", world.address)
    said = told(run)
    assert said["list home"] == listed(world.address), run.output()
    for how in ("unshare", "unshare by number", "clone by number", "clone"):
        assert said[f"list {how}"] == " requested", run.output()
        assert said[f"connect {how}"] == " Network is unreachable", run.output()
        assert said[f"index {how}"] == " 0", run.output()
    expect(other, run, {0: ("home",), 5: ("home",)})


@test(modes=MODES)
def ip_netns_exec_starts_a_server_and_a_client_in_the_namespace(world):
    """From a shell on the stack."""
    other = Other(world)
    name = other.namespace.name
    script = f"""
        ip netns exec {name} nc {world.PEER} 9000 </dev/null
        nc {world.PEER} 9000 </dev/null
        ip netns exec {name} nsenter -t $$ -n nc {world.PEER} 9000 </dev/null
        ip -4 -o addr show | grep -c {world.address}
        ip netns exec {name} ip -4 -o addr show | grep -c {world.address}
        echo from other | exec ip netns exec {name} nc -l -p {PORT}"""
    run = world.stack("/bin/sh", "-c", script)
    until(lambda: run.output() == "otherpeerpeer1\n0\n", 10, f"all have answered\n{run.tail()}")
    until(lambda: other.heard(PORT) == ["", "from other\n"], 10, f"nc answers\n{run.tail()}")

"""Links that go down and up, queues whose number changes: connections survive, and `status`
reports the problem."""

import json
import os
import shutil
import signal
import socket
import subprocess
import threading
import time

from harness import Skip, net, test
from harness.process import until
from test_mtu import Asker, everything_follows, set_mtu

LEN = 2 << 20
BOTH = ("inprocess", "instance")
# A busy machine, and senders that have to wait for their timers.
PATIENCE = 25


def serve(world, options=()):
    # BBR, where a machine has it, takes minutes to find its rate again after an outage.
    for side in (world.stack_ns, world.peer_ns):
        side.sysctl("net.ipv4.tcp_congestion_control", "reno")
    server = world.stack(*world.program("sized.py"), 7000, options=options)
    world.wait_port(7000, process=server)
    return server


def trouble(world):
    (report,) = json.loads(world.admin("status", "--json").output())
    return report["device"]["trouble"]


class FarAsker(Asker):
    """One at the other end of the second interface."""

    def __init__(self, world):
        with world.peer_b_ns.inside():
            self.sock = socket.create_connection((world.STACK_B, 7000), PATIENCE)
        self.lines = self.sock.makefile("rwb")


class Transfers:
    """Connections that run until stopped: one in each direction."""

    def __init__(self, world, kind=Asker):
        self.askers = [kind(world), kind(world)]
        for asker in self.askers:
            asker.sock.settimeout(PATIENCE)
        self.rounds = [0, 0]
        self.failures = []
        self.is_over = threading.Event()
        self.threads = [
            threading.Thread(target=self._run, args=(at, way))
            for at, way in enumerate((Asker.get, Asker.put))
        ]
        for thread in self.threads:
            thread.start()
        self.wait_for_more()

    def _run(self, at, way):
        try:
            while not self.is_over.is_set():
                way(self.askers[at], LEN)
                self.rounds[at] += 1
        except Exception as error:
            self.failures.append(repr(error))

    def wait_for_more(self, seconds=PATIENCE):
        """Both move bytes, that are the right ones."""
        before = list(self.rounds)
        move = lambda: self.failures or all(
            now > was + 1 for now, was in zip(self.rounds, before)
        )  # noqa: E731
        until(move, seconds, "both transfers go on")
        assert not self.failures, self.failures

    def finish(self):
        self.is_over.set()
        for thread in self.threads:
            thread.join(20)
        assert not self.failures and not any(
            thread.is_alive() for thread in self.threads
        ), self.failures


def flap(world, side, seconds):
    side.ip("link", "set", "eth1", "down")
    if world.mode != "kernel" and side is world.stack_ns:
        until(
            lambda: "is down" in (trouble(world) or ""), 5, "status says that the interface is down"
        )
    time.sleep(seconds)
    side.ip("link", "set", "eth1", "up")
    if side is world.peer_ns:
        return
    if world.mode != "kernel":
        until(lambda: not trouble(world), 5, "status has no trouble any more")


def goes_down_and_up(world):
    serve(world)
    transfers = Transfers(world)
    for side, seconds in ((world.stack_ns, 0.1), (world.stack_ns, 0.5), (world.peer_ns, 0.3)):
        flap(world, side, seconds)
        transfers.wait_for_more()
    transfers.finish()
    Asker(world).get(LEN)


@test
def connections_survive_an_interface_that_goes_down_and_up(world):
    goes_down_and_up(world)


@test(modes=BOTH)
def connections_over_af_xdp_survive_an_interface_that_goes_down_and_up(world):
    world.kind = "xdp"
    goes_down_and_up(world)
    set_mtu(world, 1200)
    everything_follows(world, Asker(world), 1200)


@test(modes=BOTH, device="tap")
def connections_over_a_tap_of_slipstacks_survive_when_it_goes_down_and_up(world):
    server = world.stack(*world.program("sized.py"), 7000)
    until(lambda: "is reached at" in server.errors(), 10, "the stack is up")
    world.wait_port(7000, process=server)
    transfers = Transfers(world)
    world.stack_ns.ip("link", "set", "slip0", "down")
    until(lambda: "is down" in (trouble(world) or ""), 5, "status says that the interface is down")
    world.stack_ns.ip("link", "set", "slip0", "up")
    transfers.wait_for_more()
    transfers.finish()
    assert not trouble(world)


def set_queues(world, count):
    # A pair with XDP may not have fewer queues than its other end sends by.
    sides = (world.stack_ns, world.peer_ns) if count > 2 else (world.peer_ns, world.stack_ns)
    for side in sides:
        words = [*side.prefix(), "ethtool", "-L", "eth1", "rx", str(count), "tx", str(count)]
        subprocess.run(words, check=True, capture_output=True)


def give_queues(world):
    """The pair again, with four queues, of which two are used."""
    if shutil.which("ethtool") is None:
        raise Skip("ethtool is not installed")
    world.stack_ns.ip("link", "del", "eth1")
    many = ("numrxqueues", "4", "numtxqueues", "4")
    peer = ("peer", "name", "eth1", *many, "netns", world.peer_ns.name)
    world.stack_ns.ip("link", "add", "eth1", *many, "type", "veth", *peer)
    set_queues(world, 2)
    for side, address in ((world.stack_ns, world.STACK), (world.peer_ns, world.PEER)):
        side.sysctl("net.ipv6.conf.eth1.disable_ipv6", 1)
        side.ip("link", "set", "eth1", "up")
        if side is world.peer_ns or world.mode == "kernel":
            side.ip("addr", "add", f"{address}/24", "dev", "eth1")


def queues_change(world):
    give_queues(world)
    serve(world)
    transfers = Transfers(world)
    # The kernel refuses to remove a queue that an AF_XDP socket uses.
    for count in (4, 2) if world.kind == "xdp" else (1, 4, 2):
        set_queues(world, count)
        transfers.wait_for_more()
    transfers.finish()
    for _ in range(8):
        Asker(world).get(1 << 16)


@test
def connections_survive_another_number_of_queues(world):
    queues_change(world)


@test(modes=BOTH)
def connections_over_af_xdp_survive_another_number_of_queues(world):
    world.kind = "xdp"
    queues_change(world)


def make_again(world, meanwhile=lambda: None):
    """The pair is deleted and made again, with other link-layer addresses at both ends."""
    first = ("eth1", world.peer_ns, world.STACK, world.PEER)
    make_pairs_again(world, [first], meanwhile)


def make_pairs_again(world, pairs, meanwhile):
    for name, *_ in pairs:
        world.stack_ns.ip("link", "del", name)
    if world.mode != "kernel":
        until(
            lambda: (trouble(world) or "").count("has been deleted") == len(pairs),
            5,
            "status says that the interfaces are gone",
        )
    meanwhile()
    for name, far, stack, peer in pairs:
        net.join(world.stack_ns, far, name)
        far.ip("addr", "add", f"{peer}/24", "dev", name)
        if world.mode == "kernel":
            world.stack_ns.ip("addr", "add", f"{stack}/24", "dev", name)
    if world.mode != "kernel":
        until(lambda: not trouble(world), 5, "status has no trouble any more")


def goes_and_comes_back(world):
    serve(world)
    transfers = Transfers(world)
    make_again(world)
    transfers.wait_for_more()
    transfers.finish()
    # New connections, and a program that starts now.
    asker = Asker(world)
    asker.get(LEN)
    # An engine that sleeps in between is woken by each request.
    start = time.monotonic()
    for _ in range(5):
        time.sleep(0.1)
        asker.mss()
    assert time.monotonic() - start < 5, "requests wait for timers"
    other = world.stack(*world.program("sized.py"), 7001)
    world.wait_port(7001, process=other)


@test
def connections_survive_an_interface_that_is_deleted_and_made_again(world):
    goes_and_comes_back(world)


@test(modes=BOTH)
def connections_over_af_xdp_survive_an_interface_that_is_deleted_and_made_again(world):
    world.kind = "xdp"
    goes_and_comes_back(world)


def several_go_and_come_back(world):
    """First the second interface alone, whose absence the other does not notice, then both."""
    world.use_second_pair()
    serve(world)
    near, far = Transfers(world), Transfers(world, FarAsker)
    second = ("eth2", world.peer_b_ns, world.STACK_B, world.PEER_B)
    make_pairs_again(world, [second], near.wait_for_more)
    for transfers in (far, near):
        transfers.wait_for_more()
    first = ("eth1", world.peer_ns, world.STACK, world.PEER)
    make_pairs_again(world, [first, second], lambda: None)
    for transfers in (far, near):
        transfers.wait_for_more()
        transfers.finish()
    for kind in (Asker, FarAsker):
        kind(world).get(LEN)


@test
def connections_survive_one_of_several_interfaces_that_is_made_again(world):
    several_go_and_come_back(world)


@test(modes=("inprocess",))
def connections_over_af_xdp_survive_one_of_several_that_is_made_again(world):
    world.kind = "xdp"
    several_go_and_come_back(world)


def index_of_tap(world):
    return json.loads(world.stack_ns.ip("-j", "link", "show", "slip0"))[0]["ifindex"]


@test(modes=BOTH, device="tap")
def a_tap_that_is_deleted_is_made_again(world):
    server = world.stack(*world.program("sized.py"), 7000)
    until(lambda: "is reached at" in server.errors(), 10, "the stack is up")
    world.wait_port(7000, process=server)
    transfers = Transfers(world)
    for _ in range(2):
        index = index_of_tap(world)
        world.stack_ns.ip("link", "del", "slip0")
        is_again = lambda: not trouble(world) and index_of_tap(world) != index  # noqa: E731
        until(is_again, 10, "the keeper has made the TAP again")
        transfers.wait_for_more()
    transfers.finish()
    Asker(world).get(LEN)


@test(modes=("inprocess",), device="tap")
def a_keeper_whose_tap_is_deleted_ends_with_its_last_program(world):
    """A FIN that cannot be acknowledged any more does not keep it."""
    server = world.stack(*world.program("sized.py"), 7000)
    until(lambda: "is reached at" in server.errors(), 10, "the stack is up")
    world.wait_port(7000, process=server)
    asker = Asker(world)
    asker.get(1000)
    world.stack_ns.ip("link", "set", "slip0", "down")
    server.kill()
    until(lambda: status_of(world)["orphans"] > 0, 10, "the keeper completes the connection")
    world.stack_ns.ip("link", "del", "slip0")
    until(lambda: not world.stack_ns.pids(), 10, "the keeper has ended")


@test(modes=("inprocess",))
def a_keeper_killed_after_its_interface_was_made_again_has_a_successor(world):
    serve(world, ("--pcap", str(world.folder / "wire.pcapng")))
    transfers = Transfers(world)
    make_again(world)
    transfers.wait_for_more()
    keeper = status_of(world)["keeper_pid"]
    until(lambda: status_of(world)["standby_pid"], 5, "there is a standby again")
    os.kill(keeper, signal.SIGKILL)
    until(lambda: status_of(world)["keeper_pid"] != keeper, 5, "the standby has taken over")
    transfers.wait_for_more()
    Asker(world).get(LEN)
    transfers.finish()


def status_of(world):
    (report,) = json.loads(world.admin("status", "--json").output())
    return report

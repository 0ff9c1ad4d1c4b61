"""Links that go down and up, queues whose number changes: connections survive, and `status`
reports the problem."""

import json
import os
import shutil
import signal
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


class Transfers:
    """Connections that run until stopped: one in each direction."""

    def __init__(self, world):
        self.askers = [Asker(world), Asker(world)]
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
def connections_over_af_xdp_do_too(world):
    world.kind = "xdp"
    goes_down_and_up(world)
    set_mtu(world, 1200)
    everything_follows(world, Asker(world), 1200)


@test(modes=BOTH, device="tap")
def connections_over_our_own_tap_do_too(world):
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


def make_again(world):
    """The pair is deleted and made again, with other link-layer addresses at both ends."""
    world.stack_ns.ip("link", "del", "eth1")
    if world.mode != "kernel":
        until(
            lambda: "has been deleted" in (trouble(world) or ""),
            5,
            "status says that the interface is gone",
        )
    net.join(world.stack_ns, world.peer_ns)
    for side, address in ((world.stack_ns, world.STACK), (world.peer_ns, world.PEER)):
        if side is world.peer_ns or world.mode == "kernel":
            side.ip("addr", "add", f"{address}/24", "dev", "eth1")
    if world.mode != "kernel":
        until(lambda: not trouble(world), 5, "status has no trouble any more")


def goes_and_comes_back(world):
    serve(world)
    transfers = Transfers(world)
    make_again(world)
    transfers.wait_for_more()
    transfers.finish()
    # New connections, and a program that starts now.
    Asker(world).get(LEN)
    other = world.stack(*world.program("sized.py"), 7001)
    world.wait_port(7001, process=other)


@test
def connections_survive_an_interface_that_is_deleted_and_made_again(world):
    goes_and_comes_back(world)


@test(modes=BOTH)
def connections_over_af_xdp_survive_that_too(world):
    world.kind = "xdp"
    goes_and_comes_back(world)


@test(modes=("inprocess",))
def a_keeper_that_is_killed_afterwards_has_a_successor(world):
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

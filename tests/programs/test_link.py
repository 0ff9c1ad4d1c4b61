"""slipstack-link between two kernels: frames are delayed, lost and marked as requested."""

import json
import re

from harness import Skip, net, test
from harness.process import until
from harness.world import TARGET

LEFT, RIGHT = "10.78.0.1", "10.78.0.2"
OFFLOADS = [word for name in ("tso", "gso", "gro", "tx", "rx") for word in (name, "off")]


def program():
    built = TARGET / "debug" / "slipstack-link"
    if not built.exists():
        raise Skip("slipstack-link is not built: cargo build -p slipstack-emulator")
    return built


class Wire:
    """The world's peer namespace holds both inner ends; two more are the hosts."""

    def __init__(self, world):
        self.world = world
        self.hosts = []
        for name, address in (("wire1", LEFT), ("wire2", RIGHT)):
            host = world._namespace(name[-1])
            host.ip(
                "link",
                "add",
                "eth1",
                "type",
                "veth",
                "peer",
                "name",
                name,
                "netns",
                world.stack_ns.name,
            )
            for side, device in ((host, "eth1"), (world.stack_ns, name)):
                side.sysctl(f"net.ipv6.conf.{device}.disable_ipv6", 1)
                side.ip("link", "set", device, "up")
            host.ip("addr", "add", f"{address}/24", "dev", "eth1")
            net.command("nsenter", f"--net={host.path}", "--", "ethtool", "-K", "eth1", *OFFLOADS)
            self.hosts.append(host)

    def run(self, *words):
        """Starts the link; → the process"""
        self.report = self.world.folder / "link.json"
        words = ["wire1", "wire2", *words, "--report", self.report]
        link = self.world.beside(program(), *words)
        until(lambda: "joined" in link.errors() or not link.is_running(), 5, "the link is up")
        assert link.is_running(), link.tail()
        return link

    def on_left(self, *words):
        return self.world.process([*self.hosts[0].prefix(), *map(str, words)])

    def end(self, link):
        """→ counters to the left, to the right"""
        assert link.stop() == 0, link.tail()
        return json.loads(self.report.read_text())["directions"]


@test(modes=("kernel",), device="none")
def delay_and_mtu_are_as_requested_and_the_router_announces_the_mtu(world):
    wire = Wire(world)
    link = wire.run(
        "delay=20ms", "mtu=1000", "--router", "10.78.0.254", "--pcap", world.folder / "frames"
    )
    told = wire.on_left("ping", "-c", 10, "-i", 0.05, RIGHT).finish()
    fastest = float(re.search(r"= ([\d.]+)/", told).group(1))
    assert 40 <= fastest < 43, told
    ping = wire.on_left("ping", "-c", 1, "-W", 1, "-M", "do", "-s", 1200, RIGHT)
    ping.wait(10)
    assert "10.78.0.254" in ping.output() and "mtu = 1000" in ping.output().replace(
        "mtu=", "mtu = "
    ), ping.tail()
    _, right = wire.end(link)
    assert right["dropped_too_big"] == 1, right
    assert right["delivered"] >= 11, right
    for side in ("left", "right"):
        assert (world.folder / f"frames-{side}.pcap").stat().st_size > 1000


@test(modes=("kernel",), device="none")
def losses_and_cuts_are_counted_by_their_reason(world):
    wire = Wire(world)
    link = wire.run("--to-right", "loss=30%", "--seed", 7)
    wire.on_left("ping", "-q", "-c", 500, "-i", 0.002, "-W", 1, RIGHT).wait(30)
    _, right = wire.end(link)
    # While an ARP request of the kernel is lost, it drops some of ping's packets.
    assert right["offered"] >= 350, right
    share = right["dropped_lost"] / right["offered"]
    assert 0.22 < share < 0.38, right
    link = wire.run("--at", "1ms:cut=yes")
    assert wire.on_left("ping", "-q", "-c", 3, "-i", 0.2, "-W", 1, RIGHT).wait(10) != 0
    _, right = wire.end(link)
    assert right["dropped_cut"] >= 1 and right["delivered"] == 0, right


@test(modes=("kernel",), device="none")
def hosts_at_access_ports_meet_in_one_vlan_alone(world):
    wire = Wire(world)
    link = wire.run("--left-access", 7, "--right-access", 7)
    wire.on_left("ping", "-c", 2, "-i", 0.1, "-W", 1, RIGHT).finish()
    wire.end(link)
    link = wire.run("--left-access", 7)
    assert wire.on_left("ping", "-c", 1, "-W", 1, RIGHT).wait(10) != 0
    # The right host sees tags, which it does not know.
    _, right = wire.end(link)
    assert right["delivered"] >= 1 and right["dropped_other_vlan"] == 0, right
    link = wire.run("--left-access", 7, "--right-access", 8)
    assert wire.on_left("ping", "-c", 1, "-W", 1, RIGHT).wait(10) != 0
    _, right = wire.end(link)
    assert right["dropped_other_vlan"] >= 1, right


@test(modes=("kernel",), device="none")
def invalid_requests_are_refused_with_a_sentence(world):
    for words, said in (
        (["a", "b", "speed=1"], "no parameter of a link"),
        (["a", "b", "queue=10k"], "needs a rate"),
        (["nowhere1", "nowhere2"], "no network interface named"),
    ):
        refused = world.beside(program(), *words)
        assert refused.wait(5) != 0
        assert said in refused.errors(), refused.tail()

"""Kinds of VLAN tags and the priorities in them: 802.1ad beside 802.1Q, one within the other, by
class of packets."""

import hashlib

from harness import test
from harness.process import until
from harness.tagged import CUSTOMER, PROVIDER, Wire

# Echoes datagrams, from port 7001 with the TOS for low delay (0x10), from port 7002 with the class
# that this has, from port 7003 with a class before the TOS, which counts then, and from port 7004
# with that class of one message.
ECHO = """
import select, socket
every = []
for port in range(7000, 7005):
    one = socket.socket(type=socket.SOCK_DGRAM)
    one.bind(("0.0.0.0", port))
    every.append(one)
for at, priority in (2, 6), (3, 5):
    every[at].setsockopt(socket.SOL_SOCKET, socket.SO_PRIORITY, priority)
for at in 1, 3:
    every[at].setsockopt(socket.IPPROTO_IP, socket.IP_TOS, 0x10)
assert every[3].getsockopt(socket.SOL_SOCKET, socket.SO_PRIORITY) == 6
while True:
    for one in select.select(every, [], [])[0]:
        data, to = one.recvfrom(100)
        priority = (socket.SOL_SOCKET, socket.SO_PRIORITY, (6).to_bytes(4, "little"))
        one.sendmsg([data], [priority] if one is every[4] else [], 0, to)
"""


@test(modes=("inprocess", "instance"))
def a_provider_vlan_and_its_priorities_are_set_up_while_a_server_runs(world):
    server = world.stack("/usr/bin/python3", "-c", ECHO)
    until(lambda: "reached at" in server.errors(), 10, "the stack is up")
    said = lambda *words: world.admin(*words).finish()
    link = "ip", "link", "add", "link", "eth1", "name", "eth1.20", "type", "vlan"
    said(*link, "protocol", "802.1ad", "id", 20)
    said("ip", "addr", "add", "10.10.20.5/24", "dev", "eth1.20", "nodad")
    wire = Wire(world)
    assert wire.asks(PROVIDER, 20, "10.10.20.5") == (PROVIDER, 20)
    assert wire.asks(CUSTOMER, 20, "10.10.20.5", 0.3) == (None, None)
    assert wire.asks(PROVIDER, 20, "10.10.20.5") == (PROVIDER, 20)
    assert wire.datagram(PROVIDER, 20, "10.10.20.5", 7001) == 20
    said("ip", "link", "set", "eth1.20", "type", "vlan", "egress-qos-map", "0:3", "6:5")
    shown = said("ip", "link", "show", "eth1.20")
    assert "vlan protocol 802.1ad id 20 egress-qos-map { 0:3 6:5 }" in shown, shown
    assert wire.asks(PROVIDER, 20, "10.10.20.5") == (PROVIDER, 3 << 13 | 20)
    assert wire.datagram(PROVIDER, 20, "10.10.20.5", 7000) == 3 << 13 | 20
    for port in 7001, 7002, 7003, 7004:
        assert wire.datagram(PROVIDER, 20, "10.10.20.5", port) == 5 << 13 | 20, port
    refused = world.admin(*link[:6], "other", *link[7:], "protocol", "802.1ad", "id", 20)
    assert "File exists" in refused.errors(), refused.errors()
    # A VLAN within it, and one of the port that has the same number.
    inner = "ip", "link", "add", "link", "eth1.20", "name", "eth1.20.7", "type", "vlan", "id", 7
    said(*inner)
    said("ip", "link", "add", "link", "eth1", "type", "vlan", "id", 7)
    said("ip", "addr", "add", "10.10.7.5/24", "dev", "eth1.20.7", "nodad")
    shown = said("ip", "link", "show", "eth1.20.7")
    assert "eth1.20.7@eth1.20:" in shown and " mtu 1492 " in shown, shown
    nested = Wire(world, "10.10.7.9", inner=7)
    assert nested.asks(PROVIDER, 20, "10.10.7.5") == (PROVIDER, 3 << 13 | 20)
    assert nested.inner_tag == 7
    assert nested.datagram(PROVIDER, 20, "10.10.7.5", 7001) == 5 << 13 | 20, server.tail()
    # As on Linux every interface answers for every address, here with its own tag alone.
    assert wire.asks(CUSTOMER, 7, "10.10.7.5") == (CUSTOMER, 7)
    assert "File exists" in world.admin(*inner[:6], "other", *inner[7:]).errors()
    # As F-Stack's tool prints it; both go at once.
    said("ifconfig", "f-stack-0.20", "destroy")
    assert "eth1.20" not in said("ip", "link")
    said("ifconfig", "f-stack-0.20", "create", "vlanproto", "802.1ad", "vlanpcp", 2)
    said("ifconfig", "f-stack-0.20", "inet", "10.10.20.6/24", "no_dad")
    assert wire.asks(PROVIDER, 20, "10.10.20.6") == (PROVIDER, 2 << 13 | 20)
    shown = said("ifconfig", "f-stack-0.20")
    assert "vlan: 20 vlanproto: 802.1ad vlanpcp: 2 parent interface: eth1" in shown, shown


@test(modes=("inprocess", "instance"), device="tap")
def a_tap_of_slipstacks_own_has_vlans(world):
    server = world.stack("/usr/bin/python3", "-c", ECHO)
    said = lambda *words: world.admin(*words).finish()
    for vlan, kind in (10, "802.1Q"), (20, "802.1ad"):
        name = f"slip0.{vlan}"
        link = "ip", "link", "add", "link", "slip0", "name", name, "type", "vlan"
        said(*link, "protocol", kind, "id", vlan)
        said("ip", "addr", "add", f"10.10.{vlan}.5/24", "dev", name, "nodad")
    plain, provider = (Wire(world, f"10.10.{vlan}.9", "slip0") for vlan in (10, 20))
    until(lambda: plain.asks(CUSTOMER, 10, "10.10.10.5") == (CUSTOMER, 10), 10, "it answers")
    assert plain.datagram(CUSTOMER, 10, "10.10.10.5", 7001) == 10, server.tail()
    assert provider.asks(CUSTOMER, 20, "10.10.20.5", 0.3) == (None, None)
    assert provider.asks(PROVIDER, 20, "10.10.20.5") == (PROVIDER, 20)
    assert provider.datagram(PROVIDER, 20, "10.10.20.5", 7000) == 20
    said("ip", "link", "add", "link", "slip0.20", "type", "vlan", "id", 10)
    said("ip", "addr", "add", "10.20.10.5/24", "dev", "slip0.20.10", "nodad")
    nested = Wire(world, "10.20.10.9", "slip0", inner=10)
    assert nested.asks(PROVIDER, 20, "10.20.10.5") == (PROVIDER, 20)
    assert nested.datagram(PROVIDER, 20, "10.20.10.5", 7001) == 20
    assert nested.inner_tag == 10
    strays = [row for row in said("nstat", "-az").splitlines() if "Strays" in row]
    assert all(row.split()[1] == "0" for row in strays), strays


@test(modes=("inprocess",))
def two_stacks_meet_in_a_vlan_within_a_provider_vlan(world):
    folder = world.folder / "files"
    folder.mkdir()
    data = hashlib.shake_256(b"provider").digest(3_000_000)
    (folder / "big").write_bytes(data)
    vlan = lambda address: ["--vlan", f"20.7,ip={address}/24,proto=802.1ad,pcp=4"]
    server = world.stack(
        "/usr/bin/python3", "-m", "http.server", 8000, cwd=folder, options=vlan("10.10.20.5")
    )
    until(lambda: "reached at" in server.errors(), 10, "the stack is up")
    wire = Wire(world, inner=7)
    answer = wire.asks(PROVIDER, 20, "10.10.20.5")
    assert answer == (PROVIDER, 4 << 13 | 20), answer
    assert wire.inner_tag == 4 << 13 | 7
    out = world.folder / "got"
    other = ["--if", "eth1", *vlan("10.10.20.6"), "--run-dir", world.run_dir]
    fetch = ["curl", "-sS", "--retry", 5, "--retry-connrefused", "--max-time", 30, "-o", out]
    url = "http://10.10.20.5:8000/big"
    world.peer(world.slipstack, "run", *other, "--", *fetch, url).finish()
    assert out.read_bytes() == data

"""Addresses that are added while programs run: they are first probed for on the link."""

import time

from harness import test
from harness.process import until


def changed(world, *words):
    """The refusal of a change, or nothing."""
    done = world.admin(*words)
    return done.errors().strip() if done.wait(20) != 0 else ""


def answers(world, address):
    with world.connect(8000, address=address) as client:
        client.sendall(b"who\n")
        return bool(client.makefile().readline())


@test(modes=("inprocess", "instance"))
def an_address_that_another_station_has_is_refused(world):
    world.use_ipv6()
    server = world.stack(*world.program("dual_echo.py"), 8000)
    world.wait_port(8000, process=server)
    before = world.admin("ip", "addr").finish()
    mac = world.peer_ns.ip("-br", "link", "show", "eth1").split()[2]
    for address in (f"{world.PEER}/24", f"{world.PEER6}/64"):
        why = changed(world, "ip", "addr", "add", address, "dev", "eth1")
        taken = f"Address already in use: {mac} has {address.split('/')[0]}; use nodad"
        assert taken in why, why
    bsd = "f-stack-0", "inet", world.PEER, "netmask", "255.255.255.255", "alias"
    assert "already in use" in changed(world, "ifconfig", *bsd)
    # Whole or not at all: the first address of the file is free.
    file = world.folder / "batch"
    lines = f"addr add 10.77.0.8/24 dev eth1\naddr add {world.PEER}/24 dev eth1\n"
    file.write_text(lines)
    assert "already in use" in changed(world, "ip", "-batch", file)
    assert world.admin("ip", "addr").finish() == before
    began = time.monotonic()
    assert changed(world, "ip", "addr", "add", "10.77.0.8/24", "dev", "eth1") == ""
    assert changed(world, "ip", "addr", "add", "fd00:77::8/64", "dev", "eth1") == ""
    assert time.monotonic() - began < 3
    assert answers(world, "10.77.0.8") and answers(world, "fd00:77::8")
    # `nodad` skips the probe.
    assert changed(world, "ip", "addr", "add", f"{world.PEER}/32", "dev", "eth1", "nodad") == ""
    assert world.PEER in world.admin("ip", "addr").finish()


@test(modes=("inprocess",))
def each_vlan_is_probed_for_conflicts_separately(world):
    server = world.stack(*world.program("udp_echo.py"), 7000)
    until(lambda: "reached at" in server.errors(), 10, "the stack is up")
    other = ["--if", "eth1", "--vlan", "7,ip=10.79.0.9/24", "--run-dir", world.run_dir]
    idle = ["sleep", "60"]
    peer = world.peer(world.slipstack, "run", *other, "--", *idle)
    until(lambda: "reached at" in peer.errors(), 10, "the other stack is up")
    for vlan in (7, 8):
        name = f"eth1.{vlan}"
        link = "ip", "link", "add", "link", "eth1", "name", name, "type", "vlan", "id", vlan
        assert changed(world, *link) == ""
    taken = "ip", "addr", "add", "10.79.0.9/24", "dev"
    assert "already in use" in changed(world, *taken, "eth1.7")
    assert changed(world, *taken, "eth1.8") == ""

"""Programs that listen on NETLINK_ROUTE hear of the stack's addresses, interfaces, routes and
neighbours."""

from harness import test
from harness.process import until


def listen(start, world, *kinds):
    listener = start(*world.program("listens.py"), *kinds)
    until(lambda: "listens" in listener.output(), 10, "the program listens")
    return listener


def change(world, *words):
    if world.mode == "kernel":
        world.stack_ns.ip(*words)
    else:
        world.admin("ip", *words).finish()


def told(listener):
    """The lines behind the first, without the kernel's own link-local address."""
    return [line for line in listener.output().splitlines()[1:] if "fe80:" not in line]


@test(modes=("kernel", "inprocess", "instance"))
def netlink_reports_addresses_that_come_and_go(world):
    world.use_ipv6()
    listener = listen(world.stack, world, "address")
    # A program of the kernel beside it hears of the kernel's alone.
    other = listen(world.beside, world, "address")
    heard = []
    for address in ("10.77.0.44/24", "fd00:77::44/64"):
        for verb, said in (("add", "new"), ("del", "gone")):
            nodad = ["nodad"] if verb == "add" else []
            change(world, "addr", verb, address, "dev", "eth1", *nodad)
            heard.append(f"{said} {address} eth1 from 0")
            until(lambda: heard[-1] in listener.output(), 10, heard[-1])
    assert told(listener) == heard, listener.tail()
    if world.mode != "kernel":
        assert told(other) == [], other.tail()


@test(modes=("kernel", "inprocess", "instance"))
def netlink_reports_vlans_and_routes_that_come_and_go(world):
    links = listen(world.stack, world, "link")
    routes = listen(world.stack, world, "route")
    route = ["10.66.0.0/16", "via", world.PEER, "dev", "eth1", "table", "300"]
    said = f"10.66.0.0/16 via {world.PEER} dev eth1 table 300 from 0"
    vlan = ["link", "eth1", "name", "eth1.5", "type", "vlan", "id", "5"]
    of_vlans = (
        (links, "new eth1.5 ", ("link", "add", *vlan)),
        (links, "new eth1.5 up mtu 1400 from 0", ("link", "set", "eth1.5", "mtu", "1400", "up")),
        (links, "new eth1.5 down mtu 1400 from 0", ("link", "set", "eth1.5", "down")),
        (links, "gone eth1.5 ", ("link", "del", "eth1.5")),
    )
    of_routes = (
        (routes, f"new {said}", ("route", "add", *route)),
        (routes, f"gone {said}", ("route", "del", *route)),
    )
    # Not every kernel has VLANs.
    steps = of_routes if world.mode == "kernel" else of_vlans + of_routes
    for listener, expected, words in steps:
        change(world, *words)
        until(lambda: expected in listener.output(), 10, f"{expected}: {listener.tail()}")


@test(modes=("kernel", "inprocess", "instance"))
def netlink_reports_the_networks_of_addresses_and_neighbours(world):
    listener = listen(world.stack, world, "route", "neighbour")
    if world.mode != "kernel":
        monitor = world.beside(world.slipstack, "monitor", "--run-dir", world.run_dir)
    address = "10.66.5.44/24", "dev", "eth1"
    station = "10.66.5.9", "dev", "eth1"
    mac = "lladdr", "02:00:00:00:00:09"
    nodad = () if world.mode == "kernel" else ("nodad",)
    steps = (
        ("new 10.66.5.0/24 via none dev eth1 table 254", ("addr", "add", *address, *nodad)),
        ("new 10.66.5.9 eth1 02:00:00:00:00:09", ("neigh", "add", *station, *mac)),
        ("gone 10.66.5.9 eth1", ("neigh", "del", *station)),
        ("gone 10.66.5.0/24 via none dev eth1 table 254", ("addr", "del", *address)),
    )
    for expected, words in steps:
        change(world, *words)
        until(lambda: expected in listener.output(), 10, f"{expected}: {listener.tail()}")
    if world.mode == "kernel":
        return
    # One that is learnt.
    world.peer("ping", "-c", 1, "-W", 2, world.STACK).finish()
    until(lambda: f"new {world.PEER} eth1" in listener.output(), 10, "a neighbour is learnt")
    until(lambda: f"\n{world.PEER} dev eth1 lladdr" in monitor.output(), 10, "it is shown")
    assert "10.66.5.9 dev eth1 lladdr 02:00:00:00:00:09 PERMANENT" in monitor.output()


@test(modes=("kernel", "inprocess", "instance"))
def iproute2_is_told_the_way_to_one_destination(world):
    world.use_ipv6()
    # There is a network to change while a program runs.
    listen(world.stack, world, "route")
    change(world, "route", "add", "10.66.0.0/16", "via", world.PEER, "dev", "eth1")
    for destination, way in (
        (world.PEER, f"{world.PEER} dev eth1 src {world.STACK} "),
        ("10.66.1.2", f"10.66.1.2 via {world.PEER} dev eth1 src {world.STACK} "),
        (world.STACK, f"local {world.STACK} dev lo src {world.STACK} "),
        (world.PEER6, " dev eth1 "),
        (world.PEER6, f" src {world.STACK6} "),
    ):
        told = world.stack("ip", "-o", "route", "get", destination).finish()
        assert way in told, told
    elsewhere = world.stack("ip", "-o", "route", "get", "127.0.0.1").finish()
    assert "local 127.0.0.1 dev lo src 127.0.0.1 " in elsewhere, elsewhere

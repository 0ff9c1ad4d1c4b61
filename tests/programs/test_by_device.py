"""Several sockets on one port, each bound to a device (SO_BINDTODEVICE): of one program and of two,
on two interfaces and in two VLANs."""

import collections
import socket

from harness import test
from harness.process import until
from harness.tagged import CUSTOMER, Wire

PORT = 7000


def both_kinds(namespace, address):
    """The answers by TCP and UDP from this end, or the errors."""
    told = []
    for kind in socket.SOCK_STREAM, socket.SOCK_DGRAM:
        with namespace.inside():
            client = socket.socket(socket.AF_INET, kind)
        client.settimeout(2)
        with client:
            try:
                client.connect((address, PORT))
                if kind == socket.SOCK_DGRAM:
                    client.send(b"who")
                told.append(client.recv(100).decode())
            except OSError as error:
                told.append(type(error).__name__)
    return told


def serve(world, *devices):
    server = world.stack(*world.program("by_device.py"), PORT, *devices)
    until(lambda: "ready" in server.output(), 10, "the server is ready")
    return server


def check(world, eth1, eth2):
    """Many flows each, so that several engines get some."""
    seen = collections.Counter()
    for _ in range(12):
        seen[(*both_kinds(world.peer_ns, world.STACK), 1)] += 1
        seen[(*both_kinds(world.peer_b_ns, world.STACK_B), 2)] += 1
    assert seen == {(eth1, eth1, 1): 12, (eth2, eth2, 2): 12}, seen


@test(modes=("kernel", "inprocess", "instance"))
def sockets_of_one_program_share_a_port_by_their_devices(world):
    world.use_second_pair()
    serve(world, "eth1", "eth2")
    check(world, "eth1", "eth2")


@test(modes=("kernel", "inprocess", "instance"))
def sockets_of_two_programs_share_a_port_by_their_devices(world):
    world.use_second_pair()
    first, second = serve(world, "eth2"), serve(world, "eth1")
    check(world, "eth1", "eth2")
    # A third one for all other traffic conflicts with them, as on the kernel.
    third = world.stack(*world.program("by_device.py"), PORT, "any")
    assert third.wait(10) != 0 and "Address already in use" in third.errors(), third.tail()
    # Without the first one its interface has no listener, and the other one continues.
    first.stop()
    refused = ["ConnectionRefusedError"] * 2
    until(lambda: both_kinds(world.peer_b_ns, world.STACK_B) == refused, 10, "the port is closed")
    assert both_kinds(world.peer_ns, world.STACK) == ["eth1"] * 2
    assert second.is_running()


@test(modes=("inprocess", "instance"))
def sockets_share_a_port_by_their_vlans(world):
    vlans = "20,ip=10.10.20.5/24;30,ip=10.10.20.6/32"
    options = ["--vlan", vlans]
    if world.mode == "instance":
        world.instance = world.start_instance("t", *options)
        options = []
    words = [*world.program("by_device.py"), PORT, "eth1.20", "eth1.30"]
    server = world.stack(*words, options=options)
    until(lambda: "ready" in server.output(), 10, "the server is ready")
    wire = Wire(world)
    for vlan, address in (20, "10.10.20.5"), (30, "10.10.20.6"):
        assert wire.asks(CUSTOMER, vlan, address) == (CUSTOMER, vlan)
        end = f"eth1.{vlan}".encode()
        assert wire.datagram(CUSTOMER, vlan, address, PORT, end) == vlan

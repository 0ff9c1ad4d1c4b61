"""Several interfaces in one stack, each with a namespace of its own at the other end."""

import hashlib
import json
import socket

from harness import test
from harness.nginx import Nginx
from harness.process import until


@test(modes=("kernel", "inprocess", "instance"))
def nginx_answers_on_both_interfaces_at_once(world):
    world.use_ipv6()
    world.use_second_pair()
    nginx = Nginx(world, listen="[::]:8080 ipv6only=off")
    wanted = [
        (world.peer, world.STACK),
        (world.peer_b, world.STACK_B),
        (world.peer, f"[{world.STACK6}]"),
        (world.peer_b, f"[{world.STACK6_B}]"),
    ]
    started = []
    for number, (at, address) in enumerate(wanted):
        out = world.folder / f"got-{number}"
        started.append((at("curl", "-sS", "-g", "--max-time", 20, "-o", out, f"http://{address}:8080/big.bin"), out))
    for curl, out in started:
        curl.finish()
        assert out.read_bytes() == nginx.big, curl.words


def start_caller(world, extra=()):
    """A program that calls others: gives what does so, with what the connection came from."""
    if world.mode == "instance":
        world.instance = world.start_instance("t", *extra)
        extra = ()
    process = world.stack(*world.program("caller.py"), 7000, options=extra)
    world.wait_port(7000, process=process)
    lines = world.connect(7000).makefile("rw")

    def call(*words):
        print(*words, file=lines, flush=True)
        return lines.readline().strip()

    return call


@test(modes=("kernel", "inprocess", "instance"))
def clients_go_out_by_both_with_the_addresses_of_each(world):
    """The link-layer addresses are those of the interface, as in the other end's table of neighbours."""
    world.use_second_pair()
    ends = [(world.peer, world.peer_ns, "eth1", world.PEER, world.STACK), (world.peer_b, world.peer_b_ns, "eth2", world.PEER_B, world.STACK_B)]
    for at, namespace, device, address, _ in ends:
        at(*world.program("dual_echo.py"), 8000)
        with namespace.inside():
            until(lambda address=address: is_open(address, 8000), 10, f"{address} listens")
    call = start_caller(world)
    for _, namespace, device, address, own in ends:
        assert call(address, 8000) == own
        mac = json.loads(world.stack_ns.ip("-j", "link", "show", device))[0]["address"]
        known = json.loads(namespace.ip("-j", "neigh", "show", own))[0]["lladdr"]
        assert known == mac, f"{own} is at {known}, and {device} has {mac}"


def is_open(address, port):
    try:
        socket.create_connection((address, port), 1).close()
        return True
    except OSError:
        return False


@test(modes=("kernel", "inprocess", "instance"))
def a_transfer_between_two_namespaces_is_passed_on(world):
    world.use_second_pair()
    for namespace, far, by in ((world.peer_ns, "10.78.0.0/24", world.STACK), (world.peer_b_ns, "10.77.0.0/24", world.STACK_B)):
        namespace.ip("route", "add", far, "via", by)
    extra = ["--forward"]
    if world.mode == "kernel":
        world.stack_ns.sysctl("net.ipv4.ip_forward", 1)
        extra = []
    start_caller(world, extra)
    data = hashlib.shake_256(b"forwarded").digest(5_000_000)
    folder = world.folder / "files"
    folder.mkdir()
    (folder / "big").write_bytes(data)
    world.peer_b("/usr/bin/python3", "-m", "http.server", 8000, cwd=folder)
    out = world.folder / "got"
    fetch = ["curl", "-sS", "--retry", 5, "--retry-connrefused", "--max-time", 30, "-o", out, "-w", "%{local_ip}"]
    came_from = world.peer(*fetch, f"http://{world.PEER_B}:8000/big").finish()
    assert came_from == world.PEER
    assert hashlib.sha256(out.read_bytes()).digest() == hashlib.sha256(data).digest()


@test(modes=("inprocess", "instance"))
def one_interface_down_leaves_the_other_serving(world):
    world.use_second_pair()
    nginx = Nginx(world)
    world.peer_b_ns.ip("link", "set", "eth2", "down")
    out = world.folder / "got"
    world.peer("curl", "-sS", "--max-time", 20, "-o", out, nginx.url("/big.bin")).finish()
    assert out.read_bytes() == nginx.big
    world.stack_ns.ip("link", "set", "eth2", "down")
    world.peer("curl", "-sS", "--max-time", 20, "-o", out, nginx.url("/big.bin")).finish()
    assert out.read_bytes() == nginx.big
    text = world.admin("status").output()
    assert "eth2: the interface is down" in text, text
    world.stack_ns.ip("link", "set", "eth2", "up")
    world.peer_b_ns.ip("link", "set", "eth2", "up")
    world.peer_b("curl", "-sS", "--retry", 5, "--retry-all-errors", "--max-time", 20, "-o", out, f"http://{world.STACK_B}:8080/big.bin").finish()
    assert out.read_bytes() == nginx.big


@test(modes=("inprocess",))
def a_vlan_of_the_second_interface_is_served(world):
    world.use_second_pair()
    nginx = Nginx(world, options=["--vlan", "7,ip=10.79.0.2/24"])
    out = world.folder / "got"
    other = ["--run-dir", world.run_dir, "--if", "eth2", "--ip", "10.79.0.1/24", "--vlan", 7]
    fetch = ["curl", "-sS", "--retry", 5, "--retry-connrefused", "--max-time", 20, "-o", out]
    world.peer_b(world.slipstack, "run", *other, "--", *fetch, "http://10.79.0.2:8080/big.bin").finish()
    assert out.read_bytes() == nginx.big
    listed = world.admin("ip", "addr").output()
    assert "eth2.7@eth2" in listed and "10.79.0.2/24" in listed, listed


@test(modes=("inprocess",))
def what_cannot_be_on_several_interfaces_is_refused_with_one_sentence(world):
    world.use_second_pair()
    table = [
        (["--if", "eth2"], "eth2 is there twice"),
        (["--if", "eth9", "--ip", "10.9.0.2/24"], 'there is no network interface named "eth9"'),
        (["--if", "lo"], "--if lo needs --ip"),
        (["--ip", "10.77.0.9/24"], "--if eth2 --ip 10.77.0.9/24: File exists: the network is that of another interface"),
        (["--device", "tap"], "--device tap has one interface"),
        (["--kni", "reject"], "--kni and several interfaces"),
        (["--gw", "10.99.0.1"], "the gateway 10.99.0.1"),
    ]
    for options, why in table:
        started = world.stack("/bin/true", options=options)
        assert started.wait(10) != 0, options
        assert why in started.errors() and len(started.errors().strip().splitlines()) <= 3, started.tail()


@test(modes=("inprocess",))
def every_interface_names_the_stack(world):
    world.use_second_pair()
    server = world.stack(*world.program("dual_echo.py"), 8000)
    world.wait_port(8000, process=server)
    for name in ("eth1", "eth2"):
        told = world.admin("ip", "--if", name, "addr")
        assert told.wait(10) == 0 and world.STACK_B in told.output(), told.tail()
    assert len(json.loads(world.admin("status", "--json").output())) == 1
    text = world.admin("status").output()
    assert f"eth2  {world.STACK_B}/24  mtu 1500" in text, text
    alone = world.beside(world.slipstack, "run", "--run-dir", world.run_dir, "--if", "eth2", "--ip", "10.78.0.9/24", "--", "true")
    assert alone.wait(10) != 0 and "has the address" in alone.errors(), alone.tail()

"""Several interfaces in one stack, each with a separate namespace at the other end."""

import errno
import hashlib
import json
import os
import signal
import socket
import subprocess

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
        started.append(
            (
                at(
                    "curl",
                    "-sS",
                    "-g",
                    "--max-time",
                    20,
                    "-o",
                    out,
                    f"http://{address}:8080/big.bin",
                ),
                out,
            )
        )
    for curl, out in started:
        curl.finish()
        assert out.read_bytes() == nginx.big, curl.words


def start_caller(world, extra=()):
    """A program that makes outgoing connections: returns a function that does so and returns the
    source."""
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
def clients_use_the_addresses_of_the_interface_that_they_leave_by(world):
    """The link-layer addresses are those of the interface, as in the other end's table of
    neighbours."""
    world.use_second_pair()
    ends = [
        (world.peer, world.peer_ns, "eth1", world.PEER, world.STACK),
        (world.peer_b, world.peer_b_ns, "eth2", world.PEER_B, world.STACK_B),
    ]
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
def a_transfer_between_two_namespaces_is_forwarded(world):
    world.use_second_pair()
    for namespace, far, by in (
        (world.peer_ns, "10.78.0.0/24", world.STACK),
        (world.peer_b_ns, "10.77.0.0/24", world.STACK_B),
    ):
        namespace.ip("route", "add", far, "via", by)
    start_caller(world)
    if world.mode == "kernel":
        world.stack_ns.sysctl("net.ipv4.ip_forward", 1)
    else:
        assert world.admin("sysctl", "-n", "net.ipv4.ip_forward").output() == "0\n"
        world.admin("sysctl", "-w", "net.ipv4.ip_forward=1")
        told = world.admin("sysctl", "net.inet.ip.forwarding").output()
        assert told == "net.inet.ip.forwarding = 1\n", told
    data = hashlib.shake_256(b"forwarded").digest(5_000_000)
    folder = world.folder / "files"
    folder.mkdir()
    (folder / "big").write_bytes(data)
    world.peer_b("/usr/bin/python3", "-m", "http.server", 8000, cwd=folder)
    out = world.folder / "got"
    fetch = [
        "curl",
        "-sS",
        "--retry",
        5,
        "--retry-connrefused",
        "--max-time",
        30,
        "-o",
        out,
        "-w",
        "%{local_ip}",
    ]
    came_from = world.peer(*fetch, f"http://{world.PEER_B}:8000/big").finish()
    assert came_from == world.PEER
    assert hashlib.sha256(out.read_bytes()).digest() == hashlib.sha256(data).digest()
    # Packets for others are told apart by their ports too.
    assert [answer(world, port) for port in (8000, 8001)] == [0, errno.ECONNREFUSED]
    for words in (
        "route add unreachable 10.78.0.0/24 table 77",
        "rule add iif eth1 ipproto tcp dport 8001 table 77",
    ):
        if world.mode == "kernel":
            world.stack_ns.ip(*words.split())
        else:
            world.admin("ip", *words.split()).finish()
    answers = [answer(world, port) for port in (8000, 8001)]
    assert answers == [0, errno.EHOSTUNREACH], answers


def answer(world, port):
    """What a connection from the one end to the other comes to: 0 or the error's number."""
    with world.at_peer(), socket.socket() as client:
        client.settimeout(5)
        return client.connect_ex((world.PEER_B, port))


def forwarded(world, engine):
    """How many packets for others an engine has passed on; 0: the keeper."""
    told = world.admin(
        "nstat",
        "-as",
        "--json",
        "--engine",
        engine,
        env={"SLIPSTACK_NSTAT_HISTORY": world.folder / "history"},
    )
    return json.loads(told.finish())["slipstack"].get("IpForwDatagrams", 0)


@test(modes=("inprocess", "instance"))
def forwarded_packets_pass_through_the_engine(world):
    """The path's MTU is announced or discovered: the second link has a smaller one than the
    first."""
    world.use_ipv6()
    world.use_second_pair()
    for namespace in (world.stack_ns, world.peer_b_ns):
        namespace.ip("link", "set", "eth2", "mtu", "1400")
    for namespace, far, by in (
        (world.peer_ns, "10.78.0.0/24", world.STACK),
        (world.peer_b_ns, "10.77.0.0/24", world.STACK_B),
    ):
        namespace.ip("route", "add", far, "via", by)
    for namespace, far, by in (
        (world.peer_ns, "fd00:78::/64", world.STACK6),
        (world.peer_b_ns, "fd00:77::/64", world.STACK6_B),
    ):
        namespace.ip("-6", "route", "add", far, "via", by)
    start_caller(world, ["--forward"])
    data = hashlib.shake_256(b"passed on").digest(3_000_000)
    folder = world.folder / "files"
    folder.mkdir()
    (folder / "big").write_bytes(data)
    world.peer("/usr/bin/python3", "-m", "http.server", 8000, "--bind", "::", cwd=folder)
    for address in (world.PEER, f"[{world.PEER6}]"):
        out = world.folder / "got"
        fetch = [
            "curl",
            "-sS",
            "-g",
            "--retry",
            5,
            "--retry-connrefused",
            "--max-time",
            30,
            "-o",
            out,
        ]
        world.peer_b(*fetch, f"http://{address}:8000/big").finish()
        assert out.read_bytes() == data, address
    # Without a port, in fragments, and with the last hop used up.
    world.peer("ping", "-c", 1, "-W", 5, "-s", 3000, world.PEER_B).finish()
    world.peer("ping", "-6", "-c", 1, "-W", 5, world.PEER6_B).finish()
    told = world.peer("ping", "-c", 1, "-W", 5, "-t", 1, world.PEER_B)
    told.wait(10)
    assert (
        f"From {world.STACK}" in told.output() and "Time to live exceeded" in told.output()
    ), told.tail()
    told = world.peer("ping", "-c", 1, "-W", 5, "-M", "do", "-s", 1450, world.PEER_B)
    told.wait(10)
    assert "mtu = 1400" in told.output() or "mtu=1400" in told.output(), told.tail()
    assert forwarded(world, 1) > 100
    assert forwarded(world, 0) < 10


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
    world.peer_b(
        "curl",
        "-sS",
        "--retry",
        5,
        "--retry-all-errors",
        "--max-time",
        20,
        "-o",
        out,
        f"http://{world.STACK_B}:8080/big.bin",
    ).finish()
    assert out.read_bytes() == nginx.big


@test(modes=("inprocess",))
def a_vlan_of_the_second_interface_is_served(world):
    world.use_second_pair()
    nginx = Nginx(world, options=["--vlan", "7,ip=10.79.0.2/24"])
    out = world.folder / "got"
    other = ["--run-dir", world.run_dir, "--if", "eth2", "--ip", "10.79.0.1/24", "--vlan", 7]
    fetch = ["curl", "-sS", "--retry", 5, "--retry-connrefused", "--max-time", 20, "-o", out]
    world.peer_b(
        world.slipstack, "run", *other, "--", *fetch, "http://10.79.0.2:8080/big.bin"
    ).finish()
    assert out.read_bytes() == nginx.big
    listed = world.admin("ip", "addr").output()
    assert "eth2.7@eth2" in listed and "10.79.0.2/24" in listed, listed


@test(modes=("inprocess",))
def options_for_one_interface_are_refused_on_several_with_one_sentence(world):
    world.use_second_pair()
    table = [
        (["--if", "eth2"], "eth2 is there twice"),
        (["--if", "eth9", "--ip", "10.9.0.2/24"], 'there is no network interface named "eth9"'),
        (["--if", "lo"], "--if lo needs --ip"),
        (
            ["--ip", "10.77.0.9/24"],
            "--if eth2 --ip 10.77.0.9/24: File exists: the network is that of another interface",
        ),
        (["--device", "tap"], "--device tap has one interface"),
        (["--kni", "reject"], "--kni and several interfaces"),
        (["--gw", "10.99.0.1"], "the gateway 10.99.0.1"),
    ]
    for options, why in table:
        started = world.stack("/bin/true", options=options)
        assert started.wait(10) != 0, options
        assert (
            why in started.errors() and len(started.errors().strip().splitlines()) <= 3
        ), started.tail()


@test(modes=("inprocess",))
def every_interface_selects_the_stack_that_has_it(world):
    world.use_second_pair()
    server = world.stack(*world.program("dual_echo.py"), 8000)
    world.wait_port(8000, process=server)
    for name in ("eth1", "eth2"):
        told = world.admin("ip", "--if", name, "addr")
        assert told.wait(10) == 0 and world.STACK_B in told.output(), told.tail()
    assert len(json.loads(world.admin("status", "--json").output())) == 1
    text = world.admin("status").output()
    assert f"eth2  {world.STACK_B}/24  mtu 1500" in text, text
    alone = world.beside(
        world.slipstack,
        "run",
        "--run-dir",
        world.run_dir,
        "--if",
        "eth2",
        "--ip",
        "10.78.0.9/24",
        "--",
        "true",
    )
    assert alone.wait(10) != 0 and "has the address" in alone.errors(), alone.tail()


class Peer:
    """A kernel socket at the other end of an interface, which receives the group and broadcasts."""

    GROUP, PORT = "239.7.7.7", 7001

    def __init__(self, namespace, own):
        with namespace.inside():
            self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            self.socket.bind(("", self.PORT))
            request = socket.inet_aton(self.GROUP) + socket.inet_aton(own)
            self.socket.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, request)
            self.socket.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(own))
            self.socket.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP, 0)
        self.socket.settimeout(5)

    def asks(self, address, port):
        self.socket.sendto(b"ask", (address, port))

    def hears(self, seconds=5):
        self.socket.settimeout(seconds)
        try:
            data, sender = self.socket.recvfrom(100)
        except TimeoutError:
            return None
        return data.decode(), sender[0]


@test(modes=("kernel", "inprocess", "instance"))
def sockets_see_and_choose_the_interface(world):
    world.use_second_pair()
    if world.mode == "kernel":
        world.stack_ns.ip("route", "del", "default", check=False)
    words = world.program("by_interface.py") + ["eth1", "eth2", world.STACK, world.STACK_B]
    program = world.stack(*words, stdin=subprocess.PIPE)
    until(
        lambda: "ready" in program.output() or not program.is_running(), 10, "the program is ready"
    )
    assert program.is_running(), program.tail()
    first, second = Peer(world.peer_ns, world.PEER), Peer(world.peer_b_ns, world.PEER_B)

    def does(*line):
        before = len(program.output().splitlines())
        program.child.stdin.write((" ".join(line) + "\n").encode())
        program.child.stdin.flush()
        until(
            lambda: len(program.output().splitlines()) > before or not program.is_running(),
            10,
            line,
        )
        return program.output().splitlines()[before]

    # Packet information names the interface of each datagram, and both sockets receive groups.
    for peer, name, own in ((first, "eth1", world.STACK), (second, "eth2", world.STACK_B)):
        peer.asks(own, 7001)
        assert does("receive") == f"ask {name} {own}"
        assert peer.hears() == ("back", own)
        peer.asks(Peer.GROUP, 7001)
        assert does("receive") == f"ask {name} {Peer.GROUP}"
        assert peer.hears() == ("back", own)
    # A socket that is bound to an interface receives that interface's datagrams alone.
    first.asks(world.STACK, 7002)
    second.asks(world.STACK_B, 7002)
    assert does("bound") == "ask"
    assert second.hears() == ("bound back", world.STACK_B)
    first.asks(Peer.GROUP, 7002)
    second.asks(Peer.GROUP, 7002)
    assert does("bound") == "ask"
    assert second.hears() == ("bound back", world.STACK_B)
    with world.peer_b_ns.inside():
        client = socket.create_connection((world.STACK_B, 7003), 5)
    assert does("accept") == f"{world.STACK_B} {world.PEER_B}"
    client.close()
    # To a group and to all by the one that is named.
    for peer, other, name, own in (
        (first, second, "eth1", world.STACK),
        (second, first, "eth2", world.STACK_B),
    ):
        assert does("say", own) == "said"
        assert peer.hears() == ("said", own)
        assert does("say-by-number", name) == "said"
        assert peer.hears() == ("said", own)
        for word in ("shout", "shout-by-number"):
            assert does(word, name) == "shouted"
            assert peer.hears() == ("shouted", own)
        assert other.hears(0.3) is None
    # A group that is left on one interface is received by the other.
    assert does("leave") == "left"
    second.asks(Peer.GROUP, 7001)
    first.asks(Peer.GROUP, 7001)
    assert does("receive") == f"ask eth1 {Peer.GROUP}"
    assert first.hears() == ("back", world.STACK)
    program.child.stdin.close()


@test(modes=("inprocess", "instance"))
def each_interface_has_its_own_counters_and_can_be_set_down_and_up(world):
    world.use_second_pair()
    server = world.stack(*world.program("dual_echo.py"), 8000)
    world.wait_port(8000, process=server)
    with world.peer_b_ns.inside():
        held = socket.create_connection((world.STACK_B, 8000), 5)
        held.settimeout(5)
    lines = held.makefile("rw")
    counted = lambda: {
        it["name"]: it
        for it in json.loads(world.admin("netstat", "-i", "--json").finish())
        if it["mtu"]
    }
    before = counted()
    for _ in range(100):
        print("who", file=lines, flush=True)
        assert lines.readline()
    after = counted()
    grown = {
        name: after[name]["rx_packets"] - before[name]["rx_packets"] for name in ("eth1", "eth2")
    }
    assert grown["eth2"] >= 100 and grown["eth1"] < 50, grown
    world.admin("ip", "link", "set", "eth2", "down").finish()
    assert (
        "eth2: <BROADCAST,MULTICAST> mtu 1500" in world.admin("ip", "link", "show", "eth2").finish()
    )
    world.peer_b_ns.ip("neigh", "flush", "all")
    with world.peer_b_ns.inside():
        assert not is_open(world.STACK_B, 8000)
    with world.peer_ns.inside():
        assert is_open(world.STACK, 8000)
    world.admin("ifconfig", "f-stack-1", "up").finish()
    with world.peer_b_ns.inside():
        until(lambda: is_open(world.STACK_B, 8000), 10, "the interface is up again")
    # Its connections survive, as if a cable had been unplugged.
    held.settimeout(10)
    print("who", file=lines, flush=True)
    assert lines.readline()
    held.close()


@test(modes=("inprocess", "instance"))
def both_interfaces_are_listed_shown_and_changed(world):
    world.use_second_pair()
    server = world.stack(*world.program("dual_echo.py"), 8000)
    world.wait_port(8000, process=server)
    listed = world.stack("ip", "-j", "addr").finish()
    told = {it["ifname"]: [own["local"] for own in it["addr_info"]] for it in json.loads(listed)}
    assert world.STACK in told["eth1"] and world.STACK_B in told["eth2"], told
    steps = [
        ["ip", "addr", "add", "10.78.0.3/24", "dev", "eth2"],
        ["ifconfig", "f-stack-1", "inet", "10.78.0.4", "netmask", "255.255.255.0", "alias"],
        ["ip", "link", "add", "link", "eth2", "name", "eth2.9", "type", "vlan", "id", "9"],
        ["ifconfig", "f-stack-1.10", "create"],
        ["ip", "route", "add", "10.99.0.0/16", "via", world.PEER_B],
    ]
    for words in steps:
        done = world.admin(*words)
        assert done.wait(10) == 0, done.tail()
    for address in ("10.78.0.3", "10.78.0.4"):
        with world.peer_b_ns.inside():
            until(lambda address=address: is_open(address, 8000), 5, f"{address} is served")
    shown = world.admin("ip", "addr").output()
    for text in (
        "inet 10.78.0.3/24",
        "inet 10.78.0.4/24",
        "eth2.9@eth2",
        "f-stack-1.10@eth2",
        "id 10",
    ):
        assert text in shown, shown
    assert "10.99.0.0/16 via 10.78.0.1 dev eth2" in world.admin("ip", "route").output()
    shown = world.admin("ifconfig").output()
    assert "parent interface: eth2" in shown and "inet 10.78.0.4" in shown, shown
    neighbours = json.loads(world.admin("ip", "-json", "neigh").output())
    assert [it["dev"] for it in neighbours if it["dst"] == world.PEER_B] == ["eth2"], neighbours


@test(modes=("inprocess",))
def f_stacks_file_has_two_ports(world):
    world.use_second_pair()
    file = world.folder / "config.ini"
    ports = [(0, world.STACK, world.PEER), (1, world.STACK_B, world.PEER_B)]
    sections = [
        f"[port{n}]\nif_name=eth{n + 1}\naddr={own}\nnetmask=255.255.255.0\ngateway={gateway}\n"
        for n, own, gateway in ports
    ]
    file.write_text("[dpdk]\nlcore_mask=1\nport_list=0,1\n" + "".join(sections))
    for namespace, far in ((world.peer_ns, "10.55.0.1"), (world.peer_b_ns, "10.56.0.1")):
        namespace.ip("addr", "add", f"{far}/32", "dev", "lo")
    words = [
        world.slipstack,
        "run",
        "--run-dir",
        world.run_dir,
        "--config",
        file,
        "--",
        *world.program("dual_echo.py"),
        8000,
    ]
    server = world.beside(*words)
    # From behind the gateway of each: answers leave by the interface of the query.
    for namespace, far, own in (
        (world.peer_ns, "10.55.0.1", world.STACK),
        (world.peer_b_ns, "10.56.0.1", world.STACK_B),
    ):
        with namespace.inside():
            until(
                lambda own=own: is_open(own, 8000) or not server.is_running(),
                10,
                f"{own} is served",
            )
            with socket.create_connection((own, 8000), 5, (far, 0)) as client:
                client.sendall(b"who\n")
                assert far in client.makefile().readline()
    assert (
        "default via 10.78.0.1 dev eth2" in world.admin("ip", "route", "show", "table", 1).output()
    )


@test(modes=("inprocess",))
def af_xdp_takes_both_interfaces(world):
    world.use_second_pair()
    nginx = Nginx(world, options=["--device", "xdp"])
    for at, address in ((world.peer, world.STACK), (world.peer_b, world.STACK_B)):
        out = world.folder / "got"
        at("curl", "-sS", "--max-time", 20, "-o", out, f"http://{address}:8080/big.bin").finish()
        assert out.read_bytes() == nginx.big, address
    assert "xdp" in world.admin("status").output()


@test(modes=("inprocess", "instance"))
def a_successor_of_the_keeper_has_both_interfaces(world):
    world.use_second_pair()
    server = world.stack(*world.program("dual_echo.py"), 8000)
    world.wait_port(8000, process=server)
    ends = [(world.peer_ns, world.STACK), (world.peer_b_ns, world.STACK_B)]
    held = []
    for namespace, own in ends:
        with namespace.inside():
            held.append(socket.create_connection((own, 8000), 5))
    keeper = json.loads(world.admin("status", "--json").output())[0]["keeper_pid"]
    os.kill(keeper, signal.SIGKILL)
    until(lambda: is_succeeded(world, keeper), 10, "the standby has taken over")
    for (namespace, own), client in zip(ends, held, strict=True):
        client.sendall(b"who\n")
        assert client.makefile().readline()
        client.close()
        # The other end resolves the address again, which the keeper answers.
        namespace.ip("neigh", "flush", "all")
        with namespace.inside():
            until(lambda own=own: is_open(own, 8000), 10, f"{own} is served")


def is_succeeded(world, keeper):
    told = world.admin("status", "--json")
    return (
        told.wait(10) == 0
        and told.output()
        and json.loads(told.output())[0]["keeper_pid"] != keeper
    )

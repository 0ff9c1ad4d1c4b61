"""Local ports of programs beside each other."""

import json
import os
import signal
import socket

from harness import test
from harness.process import until

# Opens the given number of sockets at once, each connected to the peer; then prints their local
# ports.
PORTS = """
import socket, sys
peer, port, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
sockets = [socket.create_connection((peer, port)) for _ in range(count)]
print(*(it.getsockname()[1] for it in sockets), flush=True)
"""
SERVE = """
import socket, sys
with socket.create_server((sys.argv[1], int(sys.argv[2])), backlog=128) as server:
    kept = []
    while True:
        kept.append(server.accept())
"""


def line_of(started):
    return until(lambda: started.output() if "\n" in started.output() else "", 10, "its first line")


def kill_keeper(world):
    def keeper():
        seen = json.loads(world.admin("status", "--json").output() or "[{}]")[0]
        return seen.get("keeper_pid") if seen.get("standby_pid") else None

    victim = until(keeper, 10, "there is a standby")
    os.kill(victim, signal.SIGKILL)
    until(lambda: keeper() not in (None, victim), 10, "there is a successor")


def serve(world):
    world.peer("/usr/bin/python3", "-c", SERVE, world.peer_address, 7900)
    world.wait_port(7900, address=world.peer_address)


def ports_of(world, count, *options):
    started = world.stack(
        "/usr/bin/python3", "-c", PORTS, world.peer_address, 7900, count, options=options
    )
    return [int(word) for word in started.finish().split()]


@test
def the_namespaces_range_is_the_stacks(world):
    world.stack_ns.sysctl("net.ipv4.ip_local_port_range", "45000 45199")
    serve(world)
    ports = ports_of(world, 60)
    assert len(set(ports)) == 60 and all(45000 <= port <= 45199 for port in ports), ports
    other = ports_of(world, 60)
    assert len(set(other)) == 60 and all(45000 <= port <= 45199 for port in other), other


@test(modes=("inprocess",))
def a_program_may_be_given_another_range(world):
    serve(world)
    ports = ports_of(world, 10, "--sysctl", "net.ipv4.ip_local_port_range=50000 50019")
    assert len(set(ports)) == 10 and all(50000 <= port <= 50019 for port in ports), ports


# Connects again and again for a minute, and prints its port each time.
AGAIN = """
import socket, sys, time
for _ in range(6000):
    with socket.create_connection((sys.argv[1], 7900)) as sock:
        print(sock.getsockname()[1], flush=True)
    time.sleep(0.01)
"""


@test
def a_range_that_is_changed_counts_for_programs_that_run(world):
    serve(world)
    running = world.stack("/usr/bin/python3", "-c", AGAIN, world.peer_address)
    line_of(running)

    def follows(first, last):
        world.stack_ns.sysctl("net.ipv4.ip_local_port_range", f"{first} {last}")
        is_there = lambda: first <= int(running.output().split()[-1]) <= last
        until(is_there, 5, f"{first} to {last}")
        # More than one block, and of two programs at a time.
        ports = ports_of(world, 300)
        assert len(set(ports)) == 300 and all(first <= port <= last for port in ports), ports

    follows(20000, 20999)
    follows(40000, 49999)
    if world.mode != "kernel":
        kill_keeper(world)
    follows(30000, 30999)
    follows(32768, 60999)
    assert running.is_running(), running.tail()


@test(modes=("inprocess",))
def a_range_of_a_programs_own_stays_when_the_kernels_is_changed(world):
    serve(world)
    other = world.stack("/usr/bin/python3", "-c", AGAIN, world.peer_address)
    line_of(other)
    own = ("--sysctl", "net.ipv4.ip_local_port_range=50000 50999")
    running = world.stack("/usr/bin/python3", "-c", AGAIN, world.peer_address, options=own)
    line_of(running)
    world.stack_ns.sysctl("net.ipv4.ip_local_port_range", "20000 20999")
    until(lambda: int(other.output().split()[-1]) < 21000, 5, "the other follows")
    line = len(running.output().split())
    until(lambda: len(running.output().split()) > line + 5, 5, "it goes on")
    ports = [int(word) for word in running.output().split()[:-1]]
    assert all(50000 <= port <= 50999 for port in ports), ports


LISTEN = """
import socket, sys
with socket.create_server((sys.argv[1], int(sys.argv[2])), backlog=16) as server:
    print("listens", flush=True)
    while True:
        sock, _ = server.accept()
        with sock:
            sock.sendall(b"served")
"""
HOLD = """
import signal, socket, sys
kept = [socket.create_connection((sys.argv[1], 7900)) for _ in range(5)]
print(*(it.getsockname()[1] for it in kept), flush=True)
signal.pause()
"""
# Connects from a certain address and port, and prints the result.
FROM = """
import errno, socket, sys
sock = socket.socket()
sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
try:
    sock.bind((sys.argv[1], int(sys.argv[2])))
    sock.connect((sys.argv[3], 7900))
    print("connected", flush=True)
except OSError as error:
    print(errno.errorcode[error.errno], flush=True)
"""
DATAGRAMS = """
import socket, sys
sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
sock.bind((sys.argv[1], 7901))
print("bound", flush=True)
while True:
    data, peer = sock.recvfrom(100)
    sock.sendto(data + sys.argv[1].encode(), peer)
"""


def with_two_addresses(world):
    both = [word for address in (world.address, "10.77.0.9") for word in ("--ip", f"{address}/24")]
    if world.mode == "kernel":
        world.stack_ns.ip("addr", "add", "10.77.0.9/24", "dev", "eth1")
    world.device_options = lambda: ["--if", "eth1", *both]
    return world.address, "10.77.0.9"


@test
def a_program_listens_on_a_port_among_the_outgoing_ones_of_another(world):
    serve(world)
    holder = world.stack("/usr/bin/python3", "-c", HOLD, world.peer_address)
    line_of(holder)
    for port in range(41000, 41040, 4):
        started = world.stack("/usr/bin/python3", "-c", LISTEN, world.address, port)
        line_of(started)
        world.wait_port(port, process=started)
        with world.connect(port, 3) as sock:
            assert sock.recv(10) == b"served", port
        started.stop()


@test
def the_port_of_a_connection_is_free_at_another_address(world):
    one, other = with_two_addresses(world)
    serve(world)
    holder = world.stack("/usr/bin/python3", "-c", HOLD, world.peer_address)
    ports = line_of(holder).split()
    for port in ports:
        started = world.stack("/usr/bin/python3", "-c", FROM, other, port, world.peer_address)
        assert started.finish() == "connected\n", port


@test
def two_programs_have_one_port_for_datagrams_at_two_addresses(world):
    addresses = with_two_addresses(world)
    for address in addresses:
        line_of(world.stack("/usr/bin/python3", "-c", DATAGRAMS, address))
    with world.at_peer():
        sockets = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(8)]
    for turn in range(5):
        for sock in sockets:
            sock.settimeout(3)
            for address in addresses:
                question = f"{turn} ".encode()
                sock.sendto(question, (address, 7901))
                assert sock.recvfrom(100) == (question + address.encode(), (address, 7901))


@test(modes=("inprocess", "instance"))
def a_wait_in_vain_names_the_ports_that_are_listened_on(world):
    server = world.stack(*world.program("aborted.py"), 8000)
    assert world.admin("wait", 8000).wait(1) == 0, server.tail()
    in_vain = world.admin("wait", 8001, "--seconds", 1)
    assert in_vain.wait(1) == 1
    told = "nothing listens on port 8001 after 1 s; listened on: 8000"
    assert told in in_vain.errors(), in_vain.tail()
    assert "listened on: 8000" in world.admin("wait", 8000, "--udp", "--seconds", 0).errors()


# Serves streams and datagrams at one address of IPv4 or IPv6, and says which it is.
SERVE_BOTH = """
import select, socket, sys
name, port = sys.argv[1], int(sys.argv[2])
family = socket.AF_INET6 if ":" in name else socket.AF_INET
listener, datagrams = (socket.socket(family, kind) for kind in (1, 2))
for sock in (listener, datagrams):
    if family == socket.AF_INET6:
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    sock.bind((name, port))
listener.listen(64)
print("serves", flush=True)
answer = b"served at " + name.encode()
while True:
    for sock in select.select([listener, datagrams], [], [])[0]:
        if sock is listener:
            with sock.accept()[0] as accepted:
                accepted.sendall(answer)
        else:
            _, sender = sock.recvfrom(100)
            sock.sendto(answer, sender)
"""
# Asks at an address, by streams and by datagrams, and prints the answers that are wrong.
ASK_BOTH = """
import socket, sys
name, port, want = sys.argv[1], int(sys.argv[2]), sys.argv[3].encode()
family = socket.AF_INET6 if ":" in name else socket.AF_INET
wrong = []
for number in range(20):
    try:
        with socket.create_connection((name, port), timeout=3) as sock:
            got = sock.recv(100)
    except OSError as error:
        got = error
    wrong += [got] if got != want else []
    with socket.socket(family, socket.SOCK_DGRAM) as sock:
        sock.settimeout(3)
        try:
            sock.sendto(b"?", (name, port))
            got = sock.recv(100)
        except OSError as error:
            got = error
    wrong += [got] if got != want else []
print(len(wrong), wrong[:3], flush=True)
"""


def serve_a_family_each(world, names):
    """Two programs, one port: one has it in IPv4, the other in IPv6."""
    world.use_ipv6()
    for name in names:
        line_of(world.stack("/usr/bin/python3", "-c", SERVE_BOTH, name, 7902))
    for name, address in zip(names, (world.address, world.STACK6)):
        words = ("/usr/bin/python3", "-c", ASK_BOTH, address, 7902, f"served at {name}")
        for start in (world.peer, world.stack):
            assert start(*words).finish(50) == "0 []\n", f"{address} by {start.__name__}"


@test
def two_programs_have_one_port_at_addresses_of_both_families(world):
    serve_a_family_each(world, (world.address, world.STACK6))


@test
def two_programs_have_one_port_at_all_addresses_of_a_family_each(world):
    serve_a_family_each(world, ("0.0.0.0", "::"))

"""One address, two stacks: which ports the kernel keeps, changed while connections live."""

import json
import os
import shutil
import signal
import socket
import struct
import time

from harness import test
from harness.process import until

OURS, KERNELS = 8000, 2222
ECHO = """
import socket, sys, threading
def serve(connection):
    while data := connection.recv(4096):
        connection.sendall(sys.argv[2].encode() + data)
listener = socket.create_server((sys.argv[3], int(sys.argv[1])))
while True:
    threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
"""


ECHO6 = ECHO.replace(
    "sys.argv[3], int(sys.argv[1]))", "'::', int(sys.argv[1])), family=socket.AF_INET6"
)


def share(world, *options):
    """The kernel has the address too, and an echo server on it; the stack has another at the other
    port."""
    options = [str(word) for word in options]
    world.stack_ns.ip("addr", "add", f"{world.STACK}/24", "dev", "eth1")
    kernel = world.beside("python3", "-c", ECHO, KERNELS, "kernel ", world.STACK)
    if world.mode == "instance":
        world.instance = world.start_instance("t", *options)
        options = ()
    ours = world.stack("/usr/bin/python3", "-c", ECHO, OURS, "stack ", world.STACK, options=options)
    for port, process in ((OURS, ours), (KERNELS, kernel)):
        world.wait_port(port, process=process)
    return ours


def says(client):
    client.sendall(b"hello")
    return client.recv(4096).decode()


def is_kernels(world, client):
    """Whether the kernel of the stack's namespace has the other end of a connection."""
    port = f":{client.getsockname()[1]}"
    return port in world.beside("ss", "-tnH", "dport", "=", port).finish()


def refuses(world, port):
    try:
        world.connect(port, 2).close()
    except ConnectionRefusedError:
        return True
    return False


@test
def listed_ports_are_the_stacks_and_connections_stay_where_they_are(world):
    share(world, "--kni", "reject", "--kni-tcp", OURS)
    ours, kernels = world.connect(OURS), world.connect(KERNELS)
    assert (says(ours), says(kernels)) == ("stack hello", "kernel hello")
    for action in ("alltokni", "alltoff", "default", "alltokni"):
        done = world.admin("knictl", "-p", 0, "-a", action)
        assert done.wait(10) == 0, done.tail()
        if action == "alltoff":
            assert refuses(world, KERNELS), action
        else:
            with world.connect(KERNELS) as client:
                assert says(client) == "kernel hello", action
        # A program that listens on an address that both have serves by the kernel too.
        with world.connect(OURS) as client:
            assert says(client) == "stack hello", action
            assert is_kernels(world, client) == (action == "alltokni"), action
        assert (says(ours), says(kernels)) == ("stack hello", "kernel hello"), action
    shown = json.loads(world.admin("knictl", "--json").output())
    assert shown == {
        "action": "alltokni",
        "method": "reject",
        "rates": [0, 0, 0],
        "tcp": str(OURS),
        "udp": "",
    }, shown
    # A list that changes, and the kernel's answer to pings, once.
    assert world.admin("knictl", "-a", "default", "--tcp", f"80,{OURS}-{OURS + 9}").wait(10) == 0
    assert says(ours) == "stack hello" and refuses(world, OURS + 5)
    if shutil.which("ping"):
        pings = world.peer("ping", "-c", 2, "-i", 0.2, world.STACK)
        pings.wait(10)
        assert "2 received" in pings.output() and "duplicates" not in pings.output(), pings.output()
    assert world.admin("knictl", "-a", "nonsense").wait(10) != 0


@test
def listed_ports_are_the_kernels_and_so_are_those_it_connects_from(world):
    share(world, "--kni", "accept", "--kni-tcp", KERNELS, "--kni-udp", 53)
    with world.at_peer():
        far = socket.create_server((world.PEER, 9000))
        asker = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    asker.settimeout(3)
    far.settimeout(10)
    # The kernel's own connection to the peer, from the address that it shares with the stack.
    with world.stack_ns.inside():
        near = socket.create_connection((world.PEER, 9000), timeout=5)
        name_server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        name_server.bind((world.STACK, 53))
        name_server.settimeout(3)
    accepted = far.accept()[0]
    assert accepted.getpeername()[0] == world.STACK
    near.sendall(b"from the kernel")
    assert accepted.recv(100) == b"from the kernel"
    accepted.sendall(b"back")
    assert near.recv(100) == b"back"
    asker.sendto(b"query", (world.STACK, 53))
    assert name_server.recv(100) == b"query"
    # The stack's own connection to the same peer.
    fetched = world.stack(
        "/usr/bin/python3",
        "-c",
        (
            f"import socket; s = socket.create_connection(('{world.PEER}', 9000), 5);"
            " s.sendall(b'from the stack'); print(s.recv(9).decode())"
        ),
    )
    other = far.accept()[0]
    assert other.recv(100) == b"from the stack"
    other.sendall(b"heard")
    fetched.finish()
    assert fetched.output() == "heard\n"
    assert refuses(world, 2223), "every other port is the stack's"


@test(modes=("inprocess",))
def ports_of_ipv6_addresses_are_shared_with_the_kernel(world):
    world.use_ipv6()
    world.stack_ns.ip("addr", "add", f"{world.STACK6}/64", "dev", "eth1", "nodad")
    kernel = world.beside("python3", "-c", ECHO6, KERNELS, "kernel ")
    options = ["--kni", "reject", "--kni-tcp", OURS]
    ours = world.stack(
        "/usr/bin/python3", "-c", ECHO6, OURS, "stack ", options=[str(word) for word in options]
    )
    for port, process, name in ((OURS, ours, "stack"), (KERNELS, kernel, "kernel")):
        world.wait_port(port, process=process, address=world.STACK6)
        with world.connect(port, address=world.STACK6) as client:
            assert says(client) == f"{name} hello"
            action = "alltokni" if port == OURS else "alltoff"
            assert world.admin("knictl", "-a", action).wait(10) == 0
            assert says(client) == f"{name} hello"
            assert world.admin("knictl", "-a", "default").wait(10) == 0
    if shutil.which("ping"):
        pings = world.peer("ping", "-c", 2, "-i", 0.2, world.STACK6)
        pings.wait(10)
        assert "2 received" in pings.output() and "duplicates" not in pings.output(), pings.output()


@test(modes=("inprocess",))
def ports_are_shared_as_before_after_the_keeper_is_killed(world):
    share(world, "--kni", "reject", "--kni-tcp", OURS)
    ours, kernels = world.connect(OURS), world.connect(KERNELS)
    assert world.admin("knictl", "-a", "alltoff").wait(10) == 0
    keeper = json.loads(world.admin("status", "--json").output())[0]["keeper_pid"]
    os.kill(keeper, signal.SIGKILL)
    for _ in range(3):
        assert (says(ours), says(kernels)) == ("stack hello", "kernel hello")
        assert refuses(world, KERNELS)
        time.sleep(0.1)


@test(modes=("inprocess",))
def a_connection_that_has_ended_leaves_nothing_behind_with_another_keeper(world):
    share(world, "--kni", "reject", "--kni-tcp", OURS)
    ours = world.connect(OURS)
    source = ours.getsockname()
    # The program has it, not the keeper in its stead.
    assert says(ours) == "stack hello"
    assert world.admin("knictl", "-a", "alltokni").wait(10) == 0
    keeper = json.loads(world.admin("status", "--json").output())[0]["keeper_pid"]
    os.kill(keeper, signal.SIGKILL)
    assert says(ours) == "stack hello"
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    ours.close()

    def is_the_kernels():
        """Whether a further connection with the same two ends opens."""
        with world.at_peer(), socket.socket() as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.settimeout(1)
            client.bind(source)
            try:
                client.connect((world.STACK, OURS))
                return says(client) == "stack hello" and is_kernels(world, client)
            except OSError:
                return False

    until(is_the_kernels, 15, "the flow is forgotten")


# Counts what comes to a port of the kernel's.
COUNT = """
import socket, sys
heard = socket.socket(type=socket.SOCK_DGRAM)
heard.bind((sys.argv[2], int(sys.argv[1])))
print("ready", flush=True)
while heard.recv(100):
    print("one", flush=True)
"""


@test(modes=("inprocess",))
def traffic_to_the_kernel_is_limited_and_traffic_to_the_stack_is_not(world):
    share(world, "--kni", "reject", "--kni-tcp", OURS, "--kni-general-rate", 20)
    assert "general 20" in world.admin("knictl").finish()
    counter = world.beside("python3", "-c", COUNT, KERNELS, world.STACK)
    until(lambda: "ready" in counter.output(), 10, "the counter hears")
    time.sleep(1.1)
    with world.at_peer(), socket.socket(type=socket.SOCK_DGRAM) as sender:
        for _ in range(300):
            sender.sendto(b"one", (world.STACK, KERNELS))
    with world.connect(OURS) as client:
        for _ in range(100):
            assert says(client) == "stack hello"
    # Two seconds may have been met.
    heard = counter.output().count("one")
    assert 5 <= heard <= 40, heard
    # When the next second begins, the kernel receives again.
    time.sleep(1.1)
    assert says(world.connect(KERNELS)) == "kernel hello"


@test(modes=("inprocess",))
def impossible_sharing_is_refused_with_a_sentence(world):
    device = ["--run-dir", world.run_dir, "--ip", f"{world.STACK}/24"]
    table = [
        (["--if", "eth1", "--kni-tcp", 80], "need --kni reject or --kni accept"),
        (["--if", "eth1", "--kni", "accept", "--kni-tcp", "80-22"], "ports from 1 to 65535"),
        (["--kni", "accept"], "--kni needs --if INTERFACE"),
        (["--if", "eth1", "--kni", "reject", "--forward"], "has its addresses alone"),
        (
            ["--if", "eth1", "--kni", "reject", "--sysctl", "net.ipv4.ip_forward=1"],
            "or net.ipv4.ip_forward=1",
        ),
    ]
    for options, why in table:
        started = world.beside(world.slipstack, "run", *device, *options, "--", "true")
        assert started.wait(10) != 0 and why in started.errors(), started.tail()
    plain = world.stack(*world.program("udp_echo.py"), 7000)
    until(lambda: "reached at" in plain.errors(), 10, "the stack is up")
    refused = world.admin("knictl", "-a", "alltokni")
    assert refused.wait(10) != 0 and "start it with --kni" in refused.errors(), refused.tail()

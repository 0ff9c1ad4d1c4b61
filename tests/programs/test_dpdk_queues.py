"""Several queues of a DPDK port, the processes of a config.ini on them, and links that fail."""

import os
import subprocess
from concurrent.futures import ThreadPoolExecutor

from harness import test
from harness.dpdk import dpdk, need_dpdk, processes
from harness.native import EXAMPLES, compiled
from harness.nginx import Nginx
from harness.process import until
from harness.world import PYTHON

ONLY = ("inprocess",)
FETCHES = 16


def on(world, device):
    """Has the programs of a world on a device of its own."""
    world.kind = device
    options = ["--device", device, "--ip", f"{world.STACK}/24", "--gw", world.PEER]
    world.device_options = lambda: options


def curl(world, port, path):
    url = f"http://{world.STACK}:{port}/{path}"
    words = [*world.peer_ns.prefix(), "curl", "-sS", "-m", "20", "--retry", "8"]
    words += ["--retry-all-errors", "--retry-delay", "1", url]
    done = subprocess.run(words, capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def fetch_many(world, server):
    """Connections at once, each of which may come by either queue; → the workers that answered."""
    with ThreadPoolExecutor(4) as pool:
        bodies = list(pool.map(lambda _: curl(world, 8080, "worker"), range(FETCHES)))
    assert curl(world, 8080, "big.bin") == server.big
    return {int(body) for body in bodies}


def resident_kb(pid):
    with open(f"/proc/{pid}/status") as file:
        (line,) = (line for line in file if line.startswith("VmRSS"))
    return int(line.split()[1])


@test(modes=ONLY, device="veth")
def workers_serve_by_several_queues_whoever_is_killed(world):
    need_dpdk(world)
    world.peer_ns.ip("link", "set", "eth1", "gso_max_segs", "1")
    on(world, dpdk("--vdev=net_af_packet0,iface=eth1,qpairs=2", "--queues=4"))
    server = Nginx(world, workers=2)
    workers = fetch_many(world, server)
    assert len(workers) == 2
    status = world.admin("status").output()
    assert "; 2 of 4 queues, without RSS)" in status, status
    assert "2, each with a thread" in status, status
    (port,) = processes(world)
    fetch_many(world, server)
    before = resident_kb(port)
    for _ in range(3):
        fetch_many(world, server)
    # More than twice the frames that its memory has room for.
    assert resident_kb(port) - before < 4096
    os.kill(port, 9)
    until(lambda: processes(world) not in ([], [port]), 10, "another process runs")
    assert fetch_many(world, server) <= workers
    killed = min(workers)
    os.kill(killed, 9)
    until(lambda: len(fetch_many(world, server) - {killed}) == 2, 20, "another worker serves")


def command(*words):
    """A request in redis's protocol."""
    parts = [word if isinstance(word, bytes) else word.encode() for word in words]
    lines = [b"$%d\r\n%s\r\n" % (len(part), part) for part in parts]
    return b"*%d\r\n" % len(parts) + b"".join(lines)


@test(modes=("inprocess", "instance"), device="veth")
def redis_returns_the_bytes_that_were_stored(world):
    need_dpdk(world)
    world.peer_ns.ip("link", "set", "eth1", "gso_max_segs", "1")
    on(world, dpdk("--vdev=net_af_packet0,iface=eth1,qpairs=2", "--queues=2"))
    words = ["--port", 6379, "--save", "", "--appendonly", "no", "--protected-mode", "no"]
    server = world.stack("redis-server", *words, cwd=world.folder)
    world.wait_port(6379, process=server)
    values = [os.urandom(size) for size in (1, 1460, 100_000, 1_000_000)]
    with world.connect(6379) as sock, sock.makefile("rb") as answers:
        for number, value in enumerate(values):
            sock.sendall(command("SET", f"key{number}", value))
            assert answers.readline() == b"+OK\r\n"
        for number, value in enumerate(values):
            sock.sendall(command("GET", f"key{number}"))
            assert answers.readline() == b"$%d\r\n" % len(value)
            assert answers.read(len(value) + 2) == value + b"\r\n"


@test(modes=ONLY, device="veth")
def a_link_that_goes_down_and_comes_up_keeps_its_connections(world):
    need_dpdk(world)
    world.peer_ns.ip("link", "set", "eth1", "gso_max_segs", "1")
    on(world, dpdk("--vdev=net_af_packet0,iface=eth1,qpairs=2", "--queues=2"))
    server = Nginx(world)
    into = world.folder / "slow"
    words = ["curl", "-sS", "--limit-rate", "1M", "-m", "40", "-o", into]
    client = world.peer(*words, f"http://{world.STACK}:8080/big.bin")
    size = lambda: into.stat().st_size if into.exists() else 0
    until(lambda: size() > 0, 10, "the transfer has begun")
    world.stack_ns.ip("link", "set", "eth1", "down")
    until(lambda: "state DOWN" in world.stack_ns.ip("link", "show", "eth1"), 5, "it is down")
    world.stack_ns.ip("link", "set", "eth1", "up")
    assert client.wait(50) == 0, client.tail()
    assert into.read_bytes() == server.big


TWO = """
[dpdk]
lcore_mask=3
no_huge=1
memory=64
symmetric_rss=1
vlan_strip=1
port_list=0
nb_vdev=1
[vdev0]
path={path}
queues=2
cq=1
[port0]
addr={address}
netmask=255.255.255.0
broadcast=10.77.0.255
gateway={gateway}
"""
ASKER = """
import sys
import urllib.request
for line in sys.stdin:
    try:
        with urllib.request.urlopen(line.strip(), timeout=10) as answer:
            print("got", len(answer.read()), flush=True)
    except OSError as error:
        print("failed", error, flush=True)
"""
ANSWER = len("hello from the stack\n")


class Asker:
    """A program on a stack of its own that fetches what it is asked for."""

    def __init__(self, world, namespace, device):
        options = ["--run-dir", world.run_dir, "--device", device, "--ip", f"{world.PEER}/24"]
        words = [world.slipstack, "run", *options, "--", PYTHON, "-c", ASKER]
        words = [*namespace.prefix(), *map(str, words)]
        self.process = world.process(words, stdin=subprocess.PIPE)
        self.asked = 0

    def ask(self, url):
        self.asked += 1
        self.process.child.stdin.write(f"{url}\n".encode())
        self.process.child.stdin.flush()
        lines = lambda: self.process.output().splitlines()
        until(lambda: len(lines()) >= self.asked, 20, "it is answered")
        return lines()[self.asked - 1]


@test(modes=ONLY, device="none")
def processes_of_a_config_ini_share_a_port_and_each_may_be_killed(world):
    need_dpdk(world)
    path = world.folder / "vhost.sock"
    client_ns = world._namespace("c")
    device = dpdk(f"--vdev=net_vhost0,iface={path},queues=2", "--queues=2")
    asker = Asker(world, client_ns, device)
    until(path.exists, 20, "the socket is there")
    conf = world.folder / "config.ini"
    conf.write_text(TWO.format(path=path, address=world.STACK, gateway=world.PEER))
    program = compiled(world, EXAMPLES / "kqueue_http.c")
    words = [program, "--conf", conf, "--run-dir", world.run_dir]

    def start(number):
        kind = "secondary" if number else "primary"
        return world.beside(*words, f"--proc-type={kind}", f"--proc-id={number}")

    def listens(server):
        return str(server.pid) in world.admin("status").output()

    def serve():
        for _ in range(12):
            assert asker.ask(f"http://{world.STACK}/") == f"got {ANSWER}"

    servers = [start(0), start(1)]
    until(lambda: all(map(listens, servers)), 20, "both listen")
    serve()
    status = world.admin("status").output()
    assert "virtio_user0" in status and "2 queues" in status, status
    for number in (0, 1):
        os.kill(servers[number].pid, 9)
        serve()
        servers[number] = start(number)
        until(lambda: all(map(listens, servers)), 20, "both listen again")
        serve()


@test(modes=ONLY, device="none")
def status_shows_the_queues_and_offloads_of_a_port(world):
    need_dpdk(world)
    for arguments, own, parts in (
        (
            "--vdev=net_null0,no-rx=1",
            "--queues=2 --symmetric-rss --vlan-strip",
            ["2 queues, symmetric RSS", "Toeplitz", "no VLAN stripping"],
        ),
        ("--vdev=net_ring0 -l 0", "--sleep-us=50", ["net_ring0 (net_ring; polled, sleeps up to"]),
    ):
        words = [world.slipstack, "run", "--run-dir", world.run_dir, "--ip", f"{world.STACK}/24"]
        words += ["--device", dpdk(arguments, own), "--", "sleep", "60"]
        program = world.beside(*words)
        until(lambda: "reached at" in program.errors(), 20, "the device is there")
        status = world.admin("status").output()
        assert all(part in status for part in parts), status
        program.stop()
        until(lambda: not world.stack_ns.pids(), 10, "the keeper has ended")

"""Ports of DPDK's as devices: packet sockets, TAP, memif, vhost-user, and what becomes of wrong
ones."""

import os
import shutil
import socket
import subprocess
import time

from harness import test
from harness.dpdk import dpdk, need_dpdk, processes, program_of
from harness.nginx import Nginx
from harness.process import cpu_seconds, until
from harness.testpmd import Testpmd, is_linked
from harness.world import PYTHON

ONLY = ("inprocess",)
BOTH = ("inprocess", "instance")
SIZE = 3_000_000
CONTENT = bytes(range(256)) * (SIZE // 256)


def options(world, device, address=None):
    return ["--run-dir", world.run_dir, "--device", device, "--ip", f"{address or world.STACK}/24"]


def run(world, namespace, device, *words, address=None):
    """A program in-process on a device of its own."""
    words = [world.slipstack, "run", *options(world, device, address), "--", *words]
    return world.process([*namespace.prefix(), *map(str, words)])


def web_server(world, namespace, device, address=None, port=8000):
    pages = world.folder / "pages"
    pages.mkdir(exist_ok=True)
    (pages / "big").write_bytes(CONTENT)
    address = address or world.STACK
    words = [PYTHON, "-u", "-m", "http.server", port, "--bind", address, "-d", pages]
    server = run(world, namespace, device, *words, address=address)
    until(lambda: "Serving" in server.output() or not server.is_running(), 20, "the server listens")
    assert server.is_running(), server.tail()
    return server


def fetch(world, prefix, address=None, port=8000, path="big", content=CONTENT):
    into = world.folder / "fetched"
    url = f"http://{address or world.STACK}:{port}/{path}"
    retry = ["--retry", "8", "--retry-all-errors", "--retry-delay", "1"]
    words = [*prefix, "curl", "-sS", *retry, "-m", "20", "-o", into, url]
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert into.read_bytes() == content
    into.unlink()


def fetch_by(world, start):
    """Has `start` run curl on a stack of its own, which fetches the file; returns that process."""
    into = world.folder / "fetched"
    retry = ["--retry", "5", "--retry-all-errors"]
    url = f"http://{world.STACK}:8000/big"
    client = start("curl", "-sS", *retry, "-m", "20", "-o", into, url)
    assert client.wait(30) == 0, client.tail()
    assert into.read_bytes() == CONTENT
    into.unlink()
    return client


def sleeps(pid):
    """How often a process has slept."""
    with open(f"/proc/{pid}/status") as file:
        (line,) = (line for line in file if line.startswith("voluntary"))
    return int(line.split()[1])


@test(modes=BOTH, device="veth")
def nginx_serves_through_packet_sockets_of_dpdks(world):
    need_dpdk(world)
    world.peer_ns.ip("link", "set", "eth1", "gso_max_segs", "1")
    world.kind = dpdk("--vdev=net_af_packet0,iface=eth1")
    world.device_options = lambda: [
        "--device",
        world.kind,
        "--ip",
        f"{world.STACK}/24",
        "--gw",
        world.PEER,
    ]
    server = Nginx(world, workers=2)
    for _ in range(3):
        fetch(world, world.peer_ns.prefix(), port=8080, path="big.bin", content=server.big)
    status = world.admin("status").output()
    assert "dpdk:net_af_packet0 (net_af_packet;" in status, status


@test(modes=ONLY, device="veth")
def a_killed_process_of_dpdks_is_started_again_and_connections_go_on(world):
    need_dpdk(world)
    world.peer_ns.ip("link", "set", "eth1", "gso_max_segs", "1")
    device = dpdk("--vdev=net_af_packet0,iface=eth1")
    server = web_server(world, world.stack_ns, device)
    (process,) = processes(world)
    into = world.folder / "slow"
    words = [
        "curl",
        "-sS",
        "--limit-rate",
        "1M",
        "-m",
        "30",
        "-o",
        into,
        f"http://{world.STACK}:8000/big",
    ]
    client = world.peer(*words)
    until(lambda: into.exists() and into.stat().st_size > 0, 10, "the transfer has begun")
    os.kill(process, 9)
    until(lambda: processes(world) not in ([], [process]), 10, "another process runs")
    assert client.wait(30) == 0, client.tail()
    assert into.read_bytes() == CONTENT
    fetch(world, world.peer_ns.prefix())
    log = "\n".join(path.read_text() for path in world.run_dir.rglob("log"))
    assert "DPDK has ended" in log and "DPDK runs again" in log, log
    server.stop()
    until(lambda: not processes(world), 10, "the process ends with the device")


@test(modes=ONLY, device="veth")
def a_port_is_in_a_vlan_and_has_both_families(world):
    need_dpdk(world)
    pages = world.folder / "pages"
    pages.mkdir()
    (pages / "big").write_bytes(CONTENT)

    def start(namespace, last, *words):
        common = [world.slipstack, "run", "--run-dir", world.run_dir, "--vlan", "7"]
        common += ["--ip", f"10.79.0.{last}/24", "--ip", f"fd00:79::{last}/64"]
        return world.process([*namespace.prefix(), *map(str, [*common, *words])])

    device = dpdk("--vdev=net_af_packet0,iface=eth1", "--sleep-us=50")
    web = [PYTHON, "-u", "-m", "http.server", "8000", "--bind", "::", "-d", pages]
    server = start(world.stack_ns, 2, "--device", device, "--", *web)
    until(lambda: "Serving" in server.output() or not server.is_running(), 20, "the server listens")
    into = world.folder / "fetched"
    for url in ("http://10.79.0.2:8000/big", "http://[fd00:79::2]:8000/big"):
        client = start(
            world.peer_ns, 1, "--if", "eth1", "--", "curl", "-sS", "-m", "20", "-o", into, url
        )
        assert client.wait(30) == 0, client.tail()
        assert into.read_bytes() == CONTENT
    assert "sleeps up to 50 µs" in world.admin("status").output()


@test(modes=ONLY, device="veth")
def an_idle_port_sleeps_and_goes_with_the_last_process_that_is_killed(world):
    need_dpdk(world)
    web_server(world, world.stack_ns, dpdk("--vdev=net_af_packet0,iface=eth1"))
    (port,) = processes(world)
    before = cpu_seconds(port)
    time.sleep(1)
    assert cpu_seconds(port) - before < 0.2
    for pid in world.stack_ns.pids():
        if pid != port:
            os.kill(pid, 9)
    until(lambda: not world.stack_ns.pids(), 10, "no process is left")
    # Of keepers that are killed with their standbys the files stay; one that has seen its last
    # program end before it was killed has removed them, and the folder.
    shutil.rmtree(world.run_dir, ignore_errors=True)
    world.run_dir.mkdir(exist_ok=True)


@test(modes=ONLY, device="none")
def impossible_dpdk_options_are_refused_with_a_sentence_and_leave_nothing(world):
    need_dpdk(world)
    huge = int(open("/proc/sys/vm/nr_hugepages").read())
    refused = {
        "dpdk": "needs the arguments of DPDK's EAL",
        "dpdk:--proc-type=secondary": "leave --proc-type out",
        dpdk("--no-such-thing"): "no-such-thing",
        dpdk("--vdev=net_nosuch0"): "net_nosuch0",
        dpdk("--vdev=net_af_packet0,iface=nosuch"): "No such device",
        dpdk("--no-pci"): "finds no port",
        dpdk("-a 0000:fe:1f.7"): "there is no PCI device 0000:fe:1f.7",
        dpdk("--vdev=net_null0 --vdev=net_null1"): "net_null0, net_null1",
        dpdk("--vdev=net_null0", "--port=eth0"): 'no port "eth0"',
        dpdk("--vdev=net_null0", "--sleep-us=soon"): "--sleep-us",
        dpdk("--vdev=net_null0 -l 0", "--queues=2"): "needs as many cores",
        dpdk("--vdev=virtio_user0,path=/no/such"): "no vhost-user socket /no/such: start",
    }
    if not huge:
        refused["dpdk:--vdev=net_null0"] = "nr_hugepages"
    for device, words in refused.items():
        program = run(world, world.stack_ns, device, "true")
        assert program.wait(20) != 0, device
        said = program.errors()
        assert words in said and len(said.splitlines()) == 1, said
    until(lambda: not world.stack_ns.pids(), 5, "no process is left")


def move(world):
    """Has the command run from a folder where the program with DPDK is not."""
    folder = world.folder / "bin"
    folder.mkdir()
    for name in ("slipstack", "libslipstack.so"):
        shutil.copy(world.slipstack.parent / name, folder)
    world.slipstack = folder / "slipstack"


@test(modes=ONLY, device="none")
def a_build_without_dpdk_says_so(world):
    move(world)
    program = run(world, world.stack_ns, dpdk("--vdev=net_null0"), "true")
    assert program.wait(20) != 0
    assert (
        "slipstack-dpdk is missing" in program.errors() and "make dpdk" in program.errors()
    ), program.errors()


@test(modes=ONLY, device="none")
def a_library_that_is_missing_is_named(world):
    need_dpdk(world)
    text = program_of(world).read_bytes()
    assert b"librte_ethdev.so.23" in text
    move(world)
    program_of(world).write_bytes(text.replace(b"librte_ethdev.so.23", b"librte_ethdev.so.99"))
    program_of(world).chmod(0o755)
    program = run(world, world.stack_ns, dpdk("--vdev=net_null0"), "true")
    assert program.wait(20) != 0
    assert "librte_ethdev.so.99 is missing: install DPDK" in program.errors(), program.errors()


@test(modes=ONLY, device="veth")
def a_bond_of_dpdks_is_the_port(world):
    need_dpdk(world)
    world.peer_ns.ip("link", "set", "eth1", "gso_max_segs", "1")
    world.stack_ns.ip("link", "add", "spare", "type", "veth", "peer", "name", "wall")
    for name in ("spare", "wall"):
        world.stack_ns.ip("link", "set", name, "up")
    members = ["--vdev=net_af_packet0,iface=eth1", "--vdev=net_af_packet1,iface=spare"]
    names = "slave=net_af_packet0,slave=net_af_packet1,primary=net_af_packet0"
    web_server(
        world, world.stack_ns, dpdk(" ".join([*members, f"--vdev=net_bonding0,mode=1,{names}"]))
    )
    fetch(world, world.peer_ns.prefix())
    status = world.admin("status").output()
    assert "dpdk:net_bonding0 (net_bonding; polled" in status, status


@test(modes=ONLY, device="none")
def the_kernel_asks_through_a_tap_of_dpdks(world):
    need_dpdk(world)
    server = web_server(world, world.stack_ns, dpdk("--vdev=net_tap0,iface=dt0"))
    world.stack_ns.ip("addr", "add", f"{world.PEER}/24", "dev", "dt0")
    fetch(world, world.stack_ns.prefix())
    status = world.admin("status").output()
    assert "net_tap0 (net_tap; interrupts;" in status, status
    (port,) = processes(world)
    before = sleeps(port)
    time.sleep(0.5)
    assert sleeps(port) - before < 50, "who has interrupts does not look every moment"
    server.stop()
    until(lambda: "dt0" not in world.stack_ns.ip("link"), 10, "the TAP goes with the device")


@test(modes=ONLY, device="none")
def dpdks_memif_and_slipstacks_are_two_ends_of_a_link(world):
    need_dpdk(world)
    path = world.folder / "memif.sock"
    ours = f"memif:{path},role=server,id=4"
    theirs = dpdk(
        f"--vdev=net_memif0,role=client,id=4,socket={path},socket-abstract=no", "--sleep-us=0"
    )
    web_server(world, world.stack_ns, ours)
    client_ns = world._namespace("c")
    for _ in range(2):
        fetch_by(world, lambda *curl: run(world, client_ns, theirs, *curl, address=world.PEER))
    # Without the server it would repeat its last FIN for minutes.
    until(lambda: not client_ns.pids(), 15, "the client's keeper has ended")


CONTAINER = """
[dpdk]
lcore_mask=1
channel=4
promiscuous=1
memory=64
no_huge=1
port_list=0
nb_vdev=1
[vdev0]
path={path}
queues=1
queue_size=256
mac=02:00:00:00:00:07
[port0]
addr={address}
netmask=255.255.255.0
broadcast=10.77.0.255
gateway={gateway}
"""


@test(modes=ONLY, device="none")
def a_container_without_a_card_joins_a_vhost_user_socket_by_config_ini(world):
    need_dpdk(world)
    path = world.folder / "vhost.sock"
    web_server(world, world.stack_ns, dpdk(f"--vdev=net_vhost0,iface={path}"))
    conf = world.folder / "config.ini"
    conf.write_text(CONTAINER.format(path=path, address=world.PEER, gateway=world.STACK))
    client_ns = world._namespace("c")
    options = ["--run-dir", world.run_dir, "--config", conf]

    def start(*curl):
        words = [world.slipstack, "run", *options, "--", *curl]
        return world.process([*client_ns.prefix(), *map(str, words)])

    for _ in range(2):
        client = fetch_by(world, start)
        assert "DPDK port f-stack-0" in client.errors(), client.errors()


@test(modes=ONLY, device="none")
def frames_pass_through_testpmd_from_a_vhost_user_socket_to_memif(world):
    need_dpdk(world)
    vhost, memif = world.folder / "vhost.sock", world.folder / "memif.sock"
    devices = [
        f"net_vhost0,iface={vhost}",
        f"net_memif0,role=server,id=0,socket={memif},socket-abstract=no",
    ]
    with Testpmd(world, world.stack_ns, devices) as forwarder:
        web_server(world, world.stack_ns, f"memif:{memif},role=client")
        until(lambda: is_linked(world, memif), 20, "the link is up")
        forwarder.start()
        client_ns = world._namespace("c")
        device = dpdk(f"--vdev=virtio_user0,path={vhost}")
        fetch_by(world, lambda *curl: run(world, client_ns, device, *curl, address=world.PEER))
        forwarder.stop()

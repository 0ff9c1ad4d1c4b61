"""Programs that are several processes which speak to each other."""

import os
import re
import sys

from harness.process import until
from page import Outcome, entry
from page import tools

NODES = (7001, 7002, 7003)


def redis_node(world, port):
    folder = world.folder / f"node-{port}"
    folder.mkdir(exist_ok=True)
    words = ["--port", port, "--bind", world.address, "--protected-mode", "no", "--save", ""]
    words += ["--cluster-enabled", "yes", "--cluster-node-timeout", 2000]
    node = world.stack("redis-server", *words, cwd=folder)
    world.wait_port(port, process=node)
    return node


@entry("Redis Cluster, three nodes", packages="redis-server redis-tools", timeout=120)
def redis_cluster(world):
    """The nodes are on the stack, at one address; the client is sent from one to another."""
    nodes = {port: redis_node(world, port) for port in NODES}
    members = [f"{world.address}:{port}" for port in NODES]
    words = ["redis-cli", "--cluster", "create", *members, "--cluster-yes"]
    world.peer(*words).finish(30)

    def ask(*words, port=NODES[0]):
        said = world.peer("redis-cli", "-c", "-h", world.address, "-p", port, *words)
        return said.finish().strip()

    def is_whole():
        return all("cluster_state:ok" in ask("cluster", "info", port=port) for port in NODES)

    until(is_whole, 20, "the cluster is whole")
    values = {f"key{number}": os.urandom(20_000).hex() for number in range(12)}
    for key, value in values.items():
        ask("set", key, value)
    assert all(ask("get", key) == value for key, value in values.items())
    words = ["redis-benchmark", "--cluster", "-h", world.address, "-p", NODES[0], "-t", "get"]
    text = tools.measure(world, *words, "-n", 40_000, "-c", 9, "-q", seconds=40)
    rate = float(re.findall(r"([\d.]+) requests per second", text)[-1])
    nodes[NODES[2]].kill()
    until(lambda: "cluster_state:fail" in ask("cluster", "info"), 20, "the others miss the node")
    redis_node(world, NODES[2])
    until(is_whole, 20, "the cluster is whole again")
    return Outcome("0.5 MB in, 0.5 MB out, a node killed", rate, "gets/s")


ZOO = """tickTime=500
initLimit=20
syncLimit=10
clientPort={client}
clientPortAddress={address}
dataDir={folder}
admin.enableServer=false
4lw.commands.whitelist=*
{servers}
"""
KAZOO = """import hashlib, os, sys, time
from kazoo.client import KazooClient
one, two = (KazooClient(hosts=hosts, timeout=10) for hosts in sys.argv[1:3])
one.start(20); two.start(20)
seen = []
one.ensure_path("/page")
two.ChildrenWatch("/page", seen.append)
values = {f"/page/n{i}": os.urandom(200_000) for i in range(15)}
for name, value in values.items():
    one.create(name, value)
two.sync("/page")
assert all(two.get(name)[0] == value for name, value in values.items())
end = time.monotonic() + 10
while not seen or len(seen[-1]) < 15:
    assert time.monotonic() < end, seen
    time.sleep(0.01)
one.stop(); two.stop()
"""


@entry("ZooKeeper, three servers", packages="zookeeper python3-kazoo", timeout=180)
def zookeeper(world):
    """A client of one of the servers writes, one of another reads."""
    servers = "\n".join(f"server.{n}={world.address}:{2880 + n}:{3880 + n}" for n in (1, 2, 3))
    started = []
    for number in (1, 2, 3):
        folder = world.folder / f"zoo{number}"
        folder.mkdir()
        (folder / "myid").write_text(f"{number}\n")
        conf = folder / "zoo.cfg"
        conf.write_text(
            ZOO.format(
                client=2180 + number, address=world.address, folder=folder, servers=servers
            )
        )
        words = ["java", "-Xmx128m", "-cp", "/usr/share/java/*:/etc/zookeeper/conf_example"]
        words += ["org.apache.zookeeper.server.quorum.QuorumPeerMain", conf]
        started.append(world.stack(*words))
    for number, server in enumerate(started, 1):
        world.wait_port(2180 + number, 60, process=server)
    script = world.folder / "client.py"
    script.write_text(KAZOO)
    hosts = [f"{world.address}:{2180 + number}" for number in (1, 3)]
    # Its rate would be that of the disk.
    world.peer(sys.executable, script, *hosts).finish(90)
    return Outcome("3 MB in, 3 MB out at another server")


MPI = """#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
static unsigned char out[3000000], in[3000000];
int main(int argc, char **argv) {
    int rank, size, wrong = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int sizes[] = {0, 1, 64, 5000, 65536, 300000, 3000000};
    for (int turn = 0; turn < 7; turn++) {
        for (int i = 0; i < sizes[turn]; i++) out[i] = i * 7 + rank * 31 + turn;
        MPI_Sendrecv(out, sizes[turn], MPI_BYTE, 1 - rank, turn, in, sizes[turn], MPI_BYTE,
                     1 - rank, turn, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        for (int i = 0; i < sizes[turn]; i++)
            wrong += in[i] != (unsigned char)(i * 7 + (1 - rank) * 31 + turn);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 0; i < 500; i++) {
        if (rank == 0) MPI_Send(out, 64, MPI_BYTE, 1, 9, MPI_COMM_WORLD);
        MPI_Recv(in, 64, MPI_BYTE, 1 - rank, 9, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (rank == 1) MPI_Send(out, 64, MPI_BYTE, 0, 9, MPI_COMM_WORLD);
    }
    int all = 0;
    MPI_Allreduce(&wrong, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0) printf("wrong %d of %d\\n", all, size);
    MPI_Finalize();
    return all != 0;
}
"""
# Starts a command on the other host, in the place of ssh.
AGENT = """#!/bin/sh
shift
TMPDIR={there} exec nsenter --net={namespace} sh -c "$*"
"""


def mpi(world, *hosts):
    """Starts the program with a rank for each host, which are two in all."""
    source, program = world.folder / "ring.c", world.folder / "ring"
    source.write_text(MPI)
    world.beside("mpicc", "-O2", "-o", program, source).finish(30)
    agent = world.folder / "agent"
    for name in ("here", "there"):
        (world.folder / name).mkdir()
    there, namespace = world.folder / "there", world.peer_ns.path
    agent.write_text(AGENT.format(there=there, namespace=namespace))
    agent.chmod(0o755)
    words = ["--allow-run-as-root", "--mca", "btl", "tcp,self", "--mca", "pml", "ob1"]
    words += ["--mca", "plm_rsh_agent", agent, "--mca", "btl_tcp_if_include", "10.77.0.0/24"]
    words += ["--mca", "oob_tcp_if_include", "10.77.0.0/24", "--oversubscribe"]
    words += ["-np", 2, "--host", ",".join(hosts)]
    env = {"HOME": world.folder, "TMPDIR": world.folder / "here"}
    return world.stack("mpirun", *words, program, env=env)


def ringed(world, *hosts):
    """Their rate would be that of two programs which poll instead of waiting."""
    said = mpi(world, *hosts).finish(60)
    assert "wrong 0 of 2" in said, said[-500:]
    return Outcome("3.4 MB each way")


@entry("Open MPI, both ranks on the stack", packages="openmpi-bin libopenmpi-dev")
def mpi_both(world):
    return ringed(world, f"{world.address}:2")


@entry("Open MPI, the other rank on the kernel", packages="openmpi-bin libopenmpi-dev")
def mpi_one(world):
    return ringed(world, f"{world.address}:1", f"{world.peer_address}:1")

"""The counters of running stacks: `slipstack nstat`, `top`, `traffic` and `netstat -i`, also by
the names of F-Stack's tools."""

import json
import os
import socket
import threading

from harness import test
from harness.process import until


def nstat(world, *words):
    """Counters by Linux's names."""
    history = {"SLIPSTACK_NSTAT_HISTORY": world.folder / "history"}
    return json.loads(world.admin("nstat", "--json", *words, env=history).finish())["slipstack"]


def by_fstack_name(world, name, *words):
    """Runs the command under the name of F-Stack's tool."""
    tool = world.folder / name
    if not tool.exists():
        os.symlink(world.slipstack, tool)
    started = world.process(
        [*world.stack_ns.prefix(), str(tool), *words, "--run-dir", str(world.run_dir)]
    )
    return started.finish().splitlines()


def echo(world, *, times):
    """Connections that each get an answer."""
    for _ in range(times):
        with world.connect(8000) as client:
            client.sendall(b"x" * 1000)
            assert client.makefile("rb").read(1000) == b"x" * 1000


class Load(threading.Thread):
    """Sends requests over one connection until it is stopped."""

    def __init__(self, client):
        super().__init__(daemon=True)
        self.client = client
        self.is_over = False

    def run(self):
        while not self.is_over:
            self.client.sendall(b"x" * 100)
            self.client.recv(100)

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.is_over = True
        self.join()


@test(modes=("inprocess", "instance"))
def nstat_shows_the_increments_since_its_last_run(world):
    server = world.stack(*world.program("aborted.py"), 8000)
    world.wait_port(8000, process=server)
    nstat(world)
    echo(world, times=3)
    with world.peer_ns.inside(), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asker:
        asker.sendto(b"nobody hears it", (world.STACK, 9999))
        # Kept back by -s, shown again and kept by the look after it.
        until(lambda: nstat(world, "-s").get("UdpNoPorts") == 1, 10, "the datagram is counted")
    added = nstat(world)
    assert added["TcpPassiveOpens"] == 3 and added["UdpNoPorts"] == 1, added
    assert (
        added["TcpInSegs"] >= 9 and added["IpInReceives"] >= 10 and "TcpActiveOpens" not in added
    ), added
    echo(world, times=2)
    added = nstat(world, "-z", "Tcp*Opens", "UdpNo?orts")
    assert added == {"TcpActiveOpens": 0, "TcpPassiveOpens": 2, "UdpNoPorts": 0}, added
    whole = nstat(world, "-a", "-s")
    # One of the connections was the look whether the server is there.
    assert whole["TcpPassiveOpens"] >= 5 and whole["engine_turns"] > 5, whole
    lines = world.admin("nstat", "-as", "TcpPassiveOpens").finish().splitlines()
    assert [line.split() for line in lines] == [
        ["#slipstack"],
        ["TcpPassiveOpens", str(whole["TcpPassiveOpens"])],
    ], lines
    none = world.admin("nstat", "-as", "--engine", 77)
    assert none.wait(10) == 1 and "no such engine" in none.errors()


@test(modes=("inprocess", "instance"))
def top_and_traffic_show_a_busy_engine_and_an_idle_one(world):
    # The thread of a connection would get its own engine.
    options = ("--thread-engines", "1") if world.mode == "inprocess" else ()
    server = world.stack(*world.program("aborted.py"), 8000, options=options)
    world.wait_port(8000, process=server)
    engine = lambda rows: next(row for row in rows if not str(row["engine"]).endswith("/0"))
    ways = ("-d", "0.5", "-n", "1", "--json")
    idle = engine(json.loads(world.admin("top", *ways).finish()))
    assert idle["idle_percent"] > 90 and idle["rx_packets_per_second"] < 50, idle
    with world.connect(8000) as client, Load(client):
        busy = engine(json.loads(world.admin("top", *ways).finish()))
        traffic = json.loads(world.admin("traffic", *ways).finish())
        tables = by_fstack_name(world, "ff_top", "-n", "1", "-d", "0.5"), by_fstack_name(
            world, "ff_traffic", "-P", "0", "-n", "1"
        )
        both = [world.admin(word, "-n", "1", "-d", "0.2").finish() for word in ("top", "traffic")]
    share = "sys_percent" if world.mode == "instance" else "usr_percent"
    assert busy[share] > 5 and busy["idle_percent"] < idle["idle_percent"], (idle, busy)
    assert (
        busy["rx_packets_per_second"] > 100 and busy["connections"] == 1 and busy["loops"] > 100
    ), busy
    row, total = engine(traffic), traffic[-1]
    # A question and an answer of 100 bytes, in frames with 66 bytes of headers.
    assert row["rx_packets"] > 100 and row["rx_bytes"] > 100 * row["rx_packets"], row
    assert total["engine"] == "total" and total["tx_bytes"] >= row["tx_bytes"] > 0, traffic
    top, flow = tables
    assert [cell.strip() for cell in top[1].split("|")] == [
        "",
        "idle",
        "sys",
        "usr",
        "loop",
        "",
    ], top
    cells = [cell.strip(" %") for cell in top[3].split("|")[1:-1]]
    assert 0 <= float(cells[0]) < 100 and int(cells[3]) > 100, top
    assert [cell.strip() for cell in flow[1].split("|")][1:4] == [
        "proc_id",
        "rx packets",
        "rx bytes",
    ], flow
    assert int(flow[3].split("|")[2]) > 100 and flow[4].split("|")[1].strip() == "total", flow
    assert all("ENGINE" in text and "eth1/1" in text for text in both), both
    once = by_fstack_name(world, "ff_traffic", "-s")
    assert len(once) == 1 and all(int(cell) >= 0 for cell in once[0].split(",")), once


@test(modes=("inprocess", "instance"))
def netstat_lists_interfaces_with_their_counters(world):
    server = world.stack(*world.program("aborted.py"), 8000)
    world.wait_port(8000, process=server)
    rows = lambda *words: {
        (it["name"], it["address"]): it
        for it in json.loads(world.admin("netstat", "--json", "-i", *words).finish())
    }
    link = lambda: next(
        it for it in rows().values() if it["network"].startswith("<Link") and it["name"] == "eth1"
    )
    before = link()
    echo(world, times=5)
    after = link()
    assert after["rx_packets"] >= before["rx_packets"] + 15, (before, after)
    assert after["tx_bytes"] > before["tx_bytes"] + 5000, (before, after)
    assert rows()["eth1", world.STACK]["network"] == "10.77.0.0/24"
    world.admin(
        "ip", "link", "add", "link", "eth1", "name", "eth1.7", "type", "vlan", "id", 7
    ).finish()
    head, *lines = by_fstack_name(world, "ff_netstat", "-i", "-b")
    assert (
        head.split()[:5] == ["Name", "Mtu", "Network", "Address", "Ipkts"] and "Obytes" in head
    ), head
    assert {line.split()[0] for line in lines} == {"f-stack-0", "f-stack-0.7"}, lines
    with world.connect(8000) as client, Load(client):
        words = "-I", "eth1", "-w", "0.5", "-q", "2"
        title, names, *lines = world.admin("netstat", *words).finish().splitlines()
    assert "(eth1)" in title and names.split()[0] == "packets" and len(lines) == 2, (
        title,
        names,
        lines,
    )
    assert all(int(line.split()[0]) > 50 and int(line.split()[3]) > 5000 for line in lines), lines
    wrong = world.admin("netstat", "-I", "eth9")
    assert wrong.wait(10) == 1 and "eth9: no such interface" in wrong.errors()

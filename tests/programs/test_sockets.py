"""The sockets of running stacks: `slipstack ss` with its filters, and how an operator closes
connections."""

import json

from harness import test
from harness.process import until


def name_of(client):
    return "%s:%d" % client.getsockname()


def is_reset(client):
    client.settimeout(10)
    try:
        return client.recv(1) is None
    except ConnectionResetError:
        return True


def listed(world, *words):
    """The rows of `ss --json` by the peer's address."""
    rows = json.loads(world.admin("ss", "--json", *words).finish())
    return {row["remote"]: row for row in rows}


@test(modes=("inprocess", "instance"))
def filters_choose_among_the_sockets_of_several_programs(world):
    for port in (8000, 9000):
        server = world.stack(*world.program("aborted.py"), port)
        world.wait_port(port, process=server)
    with world.connect(8000) as one, world.connect(9000) as other:
        for client in (one, other):
            client.sendall(b"x" * 5000)
            assert client.makefile("rb").read(5000) == b"x" * 5000
        table = [
            ("state established", {one, other}),
            ("state established sport = :8000", {one}),
            (f"( dst {world.PEER}/24 and not dport = :{other.getsockname()[1]} )", {one}),
            (f"dst {name_of(other)} or sport lt 8000", {other}),
            ("state close-wait", set()),
            ("dst 192.0.2.0/24", set()),
        ]
        for words, clients in table:
            assert set(listed(world, "-tn", *words.split())) == {
                name_of(it) for it in clients
            }, words
        row = listed(world, "-tni", "sport", "=", ":8000")[name_of(one)]
        figures = row["figures"]
        assert figures["bytes_received"] == figures["bytes_acked"] == 5000, figures
        assert figures["cwnd"] >= 10 and figures["mss"] > 1000 and figures["rtt_us"] > 0, figures
        assert [user["fd"] >= 0 for user in row["users"]] == [True], row
        text = world.admin("ss", "-tniepm", "dport", "=", f":{other.getsockname()[1]}").finish()
        for word in ("ESTAB", "cwnd:", "rtt:", "users:((", "skmem:(", "idle:"):
            assert word in text, (word, text)
        assert "Netid" not in world.admin("ss", "-tnH").finish()
    ports = {
        row["local"].rpartition(":")[2]
        for row in json.loads(world.admin("ss", "-tlnp", "--json").finish())
    }
    assert {"8000", "9000"} <= ports, ports
    wrong = world.admin("ss", "state", "open")
    assert wrong.wait(10) == 1 and 'there is no state "open"' in wrong.errors()


@test(modes=("inprocess", "instance"))
def connections_are_dropped_one_by_one_and_by_common_properties(world):
    server = world.stack(*world.program("aborted.py"), 8000)
    world.wait_port(8000, process=server)
    # Both tell of what happens from now on.
    command = [*world.stack_ns.prefix(), str(world.slipstack)]
    ends = world.process([*command, "ss", "-tEip", "--run-dir", str(world.run_dir)])
    status = [*command, "status", "--watch", "0.1", "--json", "--run-dir", str(world.run_dir)]
    status = world.process(status)
    until(lambda: "PEER ADDRESS" in ends.output() and status.output(), 10, "they watch")
    clients = [world.connect(8000) for _ in range(6)]
    for client in clients:
        client.sendall(b"a")
        assert client.recv(1) == b"a"
    counts = lambda: [
        sum(engine["flows"] for engine in json.loads(line)[0]["engines"])
        for line in status.output().splitlines()
    ]
    until(lambda: counts()[-1] > 1, 10, "the status tells of them")
    told = lambda client, how: f"end of {client.getsockname()[1]}: {how}" in server.output()
    own = f"{world.STACK}:8000"
    pair = [own, name_of(clients[0])]
    assert world.admin("drop", *pair).finish() == "1 connection dropped\n"
    assert is_reset(clients[0])
    until(lambda: told(clients[0], "ECONNABORTED"), 10, "the program learns it")
    # It is not there any more.
    assert world.admin("drop", *pair).wait(10) == 1
    file = world.folder / "pairs"
    lines = "Proto Local Foreign\n" + "".join(
        f"{own} {name_of(client)}\n" for client in clients[1:3]
    )
    file.write_text(lines)
    with open(file) as pairs:
        assert world.admin("drop", "-", stdin=pairs).finish() == "2 connections dropped\n"
    assert is_reset(clients[1]) and is_reset(clients[2])
    killed = world.admin("ss", "-tKH", "dst", name_of(clients[3])).finish()
    assert name_of(clients[3]) in killed and is_reset(clients[3])
    # The others have noticed nothing; one that is idle for so long is none of them.
    assert world.admin("drop", "--idle", 3600).finish() == "0 connections dropped\n"
    clients[4].sendall(b"b")
    assert clients[4].recv(1) == b"b"
    assert (
        world.admin("drop", "--state", "established", "--port", 8000).finish()
        == "2 connections dropped\n"
    )
    assert is_reset(clients[4]) and is_reset(clients[5])
    assert not listed(world, "-tn")
    # The listener stays.
    with world.connect(8000) as client:
        client.sendall(b"c")
        assert client.recv(1) == b"c"
        clients.append(client)
        names = [name_of(client) for client in clients]
    until(lambda: names[-1] in ends.output(), 10, "the end of the last connection")
    lines = [line for line in ends.output().splitlines() if line.startswith("UNCONN")]
    assert all(sum(name in line for line in lines) == 1 for name in names), (names, lines)
    assert "bytes_received:1 " in ends.output() and not ends.errors(), ends.tail()
    until(lambda: counts()[-1] == 0, 10, "the status follows")
    nothing = world.admin("drop")
    assert nothing.wait(10) == 1 and "which connections?" in nothing.errors()


@test(modes=("inprocess", "instance"))
def time_wait_is_listed_and_dropped(world):
    server = world.stack(*world.program("closes_first.py"), 8000)
    world.wait_port(8000, process=server)
    with world.connect(8000) as client:
        own = name_of(client)
        while client.recv(1000):
            pass
    waits = lambda: own in listed(world, "-tn", "state", "time-wait")
    until(waits, 10, "the connection waits")
    assert "timer:(timewait," in world.admin("ss", "-tane", "dst", own).finish()
    assert (
        world.admin("drop", "--state", "time-wait", "--peer", own).finish()
        == "1 connection dropped\n"
    )
    assert not waits()


@test(modes=("inprocess", "instance"))
def every_user_reads_what_is_theirs_and_changes_nothing(world):
    world.skip_unless_others_may_run_it()
    user = ["setpriv", "--reuid", "www-data", "--regid", "www-data", "--clear-groups"]

    def ask(*words):
        words = [world.slipstack, words[0], "--run-dir", world.run_dir, *words[1:]]
        started = world.beside(*user, *words)
        started.wait(20)
        return started

    of_root = world.stack(*world.program("aborted.py"), 8000)
    world.wait_port(8000, process=of_root)
    # It is started by root, as servers are that give up their privileges.
    own = world.stack(*user, *world.program("aborted.py"), 9000)
    world.wait_port(9000, process=own)
    with world.connect(8000) as client:
        client.sendall(b"a")
        assert client.recv(1) == b"a"
        rows = json.loads(ask("ss", "-tanp", "--json").finish())
        peers = {row["remote"]: row for row in rows}
        assert peers[name_of(client)]["users"] == [], rows
        listening = {
            row["local"].rpartition(":")[2]: [user["pid"] for user in row["users"]]
            for row in rows
            if row["state"] == "listen"
        }
        assert listening == {"8000": [], "9000": [own.pid]}, rows
    for words, shown in (
        ("ip addr", f"inet {world.STACK}/24"),
        ("ip route", f"default via {world.PEER}"),
        ("sysctl net.ipv4.tcp_fin_timeout", "= 60"),
        ("nstat -as", "TcpInSegs"),
        ("netstat -an", "8000"),
    ):
        assert shown in ask(*words.split()).finish(), words
    status = json.loads(ask("status", "--json").finish())[0]
    programs = status["programs"] + [it for one in status["instances"] for it in one["programs"]]
    programs = {it["pid"]: (bool(it["sockets"]), it["is_concealed"]) for it in programs}
    assert programs[of_root.pid] == (False, True) and programs[own.pid] == (True, False), programs
    assert "9000" in ask("why", own.pid).finish()
    for words in (
        "ip addr add 10.77.0.9/24 dev eth1",
        "sysctl -w net.ipv4.tcp_fin_timeout=9",
        "ss -K sport = :8000",
        "ipfw list",
        "ipfw add 100 deny tcp from any to any",
        f"why {of_root.pid}",
        "stop --all",
    ):
        refused = ask(*words.split())
        assert refused.child.returncode == 1, (words, refused.tail())
        assert "Operation not permitted" in refused.errors(), (words, refused.tail())


# Has 300 connections to the peer.
MANY = """
import signal, socket, sys
kept = [socket.create_connection((sys.argv[1], 7900)) for _ in range(300)]
print("connected", flush=True)
signal.pause()
"""
SERVE = """
import socket, sys
with socket.create_server((sys.argv[1], 7900), backlog=512) as server:
    kept = []
    while True:
        kept.append(server.accept())
"""


@test(modes=("inprocess", "instance"))
def status_and_why_tell_how_many_sockets_a_program_has(world):
    world.peer("/usr/bin/python3", "-c", SERVE, world.peer_address)
    world.wait_port(7900, address=world.peer_address)
    program = world.stack("/usr/bin/python3", "-c", MANY, world.peer_address)
    until(lambda: "connected" in program.output(), 20, "its connections")
    text = world.admin("status").finish()
    line = next(line for line in text.splitlines() if line.split()[:1] == [str(program.pid)])
    assert line.split()[-1] == "300", text
    assert f"(64 of the 300 sockets of {program.pid} are shown)" in text, text
    text = world.admin("why", program.pid).finish()
    assert f"(256 of the 300 sockets of {program.pid} are shown)" in text, text

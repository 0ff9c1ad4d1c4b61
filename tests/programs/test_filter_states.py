"""Flows that the packet filter tracks (`keep-state`, `limit`), and the log of its rules."""

import socket

from harness import test
from harness.filters import attempt, counts, ipfw, is_echoed
from harness.process import until


def rules(world, *lines):
    """All of them at once, from a file."""
    path = world.folder / "rules"
    path.write_text("".join(f"{line}\n" for line in lines))
    ipfw(world, "-q", path)


def flows(world, *options):
    """The lines of known flows."""
    listed = ipfw(world, "-d", *options, "list").splitlines()
    return [line for line in listed if " <-> " in line]


@test(modes=("inprocess", "instance"))
def flows_accepted_by_a_rule_continue_in_both_directions(world):
    started = world.stack(*world.program("aborted.py"), 8000)
    world.wait_port(8000, process=started)
    before = world.connect(8000)
    rules(
        world,
        "flush  # what was there",
        "add 50 check-state",
        f"add 100 allow tcp from {world.PEER} to me 8000 setup in keep-state",
        "add 200 deny log tcp from any to any // all others",
    )
    held = world.connect(8000)
    assert is_echoed(held)
    (line,) = flows(world)
    port = held.getsockname()[1]
    assert line.startswith("00100 (") and line.endswith(
        f") STATE tcp {world.PEER} {port} <-> {world.STACK} 8000 :default"
    ), line
    assert 250 < int(line.split("(")[1].split("s")[0]) <= 300, line
    # The filter has not seen the beginning of this one.
    before.settimeout(0.3)
    before.sendall(b"x")
    try:
        before.recv(1)
        raise AssertionError("it is not known")
    except TimeoutError:
        pass
    assert counts(world)[100] > 4 and counts(world)[200] >= 1
    log = next(world.run_dir.rglob("log")).read_text()
    wanted = (
        f"ipfw: 200 Deny TCP {world.PEER}:{before.getsockname()[1]} {world.STACK}:8000 in via eth1"
    )
    assert wanted in log, log
    held.close()
    until(lambda: not flows(world), 10, "the flow ends with the connection")
    rules(world, "add 60 allow ip from any to any")
    assert is_echoed(attempt(world, 8000))
    assert not flows(world), "a rule before it decides"


@test(modes=("inprocess",))
def flows_that_are_alike_are_limited_and_logs_too(world):
    started = world.stack(*world.program("aborted.py"), 8000)
    world.wait_port(8000, process=started)
    rules(
        world,
        "add 100 allow log logamount 3 tcp from any to me 8000 limit src-addr 2",
        "add 200 deny tcp from any to any",
    )
    first, second = world.connect(8000), world.connect(8000)
    assert is_echoed(first) and is_echoed(second)
    assert len(flows(world)) == 2 and all(" LIMIT tcp " in line for line in flows(world))
    assert attempt(world, 8000, 0.3) is TimeoutError, "a third is one too many"
    log = next(world.run_dir.rglob("log"))
    lines = [
        line[line.index("ipfw: ") :] for line in log.read_text().splitlines() if "ipfw: " in line
    ]
    assert len(lines) == 4 and lines[3] == "ipfw: limit 3 reached on entry 100", lines
    assert ipfw(world, "resetlog", 100) == "Entry 100 logging count reset.\n"
    assert is_echoed(first)
    until(lambda: log.read_text().count("ipfw: 100 Accept TCP") > 3, 5, "it is logged again")
    first.close()
    again = lambda: (got := attempt(world, 8000, 0.3)) is not TimeoutError and is_echoed(got)
    until(again, 10, "there is room for another one")
    assert ipfw(world, "delete", 100) == "" and not flows(world), "flows go with their rule"
    assert ipfw(world, "-T", "list").splitlines()[0].split()[1].isdigit()
    ipfw(world, "-q", "flush")


@test(modes=("inprocess",))
def a_limit_counts_the_flows_of_all_engines(world):
    limit = 16
    servers = [world.stack(*world.program("aborted.py"), 8000, "shared") for _ in range(2)]
    world.wait_port(8000, process=servers[0])

    def both_serve():
        with world.connect(8000) as client:
            assert is_echoed(client)
        return all("end of" in server.output() for server in servers)

    until(both_serve, 20, "each has had a connection")
    rules(
        world,
        f"add 100 allow tcp from any to me 8000 setup in limit src-addr {limit}",
        "add 110 check-state",
        "add 200 deny tcp from any to any",
    )

    def fill(count):
        """Opens so many connections; another one is refused, whichever engine it reaches."""
        opened = []
        while len(opened) < count:
            if (got := attempt(world, 8000, 3)) is not TimeoutError:
                assert is_echoed(got)
                opened.append(got)
        assert [attempt(world, 8000, 0.2) for _ in range(3)] == [TimeoutError] * 3
        return opened

    until(lambda: not flows(world), 10, "there are no others")
    held = fill(limit)
    servers[0].kill()
    servers[0].wait(10)

    def is_lost(client):
        client.settimeout(0.1)
        try:
            client.sendall(b"x")
            return client.recv(1) == b""
        except TimeoutError:
            return False
        except OSError:
            return True

    lost = [client for client in held if is_lost(client)]
    assert 0 < len(lost) < limit, "each engine had some of them"
    again = fill(len(lost))
    assert len(flows(world)) == limit
    for client in again:
        client.close()
    until(lambda: len(flows(world)) == limit - len(lost), 10, "they are over")
    assert is_echoed(attempt(world, 8000)), "for whoever is next"


@test(modes=("inprocess",))
def answers_to_datagrams_pass_as_part_of_their_flow(world):
    started = world.stack(*world.program("udp_echo.py"), 7000)
    until(lambda: "reached at" in started.errors(), 10, "the stack is up")
    rules(
        world,
        "add 100 allow udp from any to me 7000 in keep-state",
        "add 200 deny udp from any to any",
    )
    with world.at_peer():
        client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    client.connect((world.STACK, 7000))
    client.settimeout(1)

    def is_answered():
        try:
            client.send(b"hello")
            return client.recv(100) == b"answer to hello"
        except OSError:
            return False

    until(is_answered, 10, "the answer comes out")
    # Segments that came before the program had its socket were refused by the keeper, which has the
    # rules too.
    lines = flows(world, "-a")
    assert any(int(line.split()[1]) >= 2 and " STATE udp " in line for line in lines), lines


@test(modes=("inprocess",))
def the_filter_state_of_a_connection_moves_to_another_engine_with_it(world):
    started = world.stack(*world.program("passing.py"), 7210, "rights")
    world.wait_port(7210, process=started)
    rules(
        world,
        "add 100 allow tcp from any to me setup in keep-state",
        "add 200 deny tcp from any to any",
    )
    with world.connect(7210) as sock, sock.makefile() as stream:
        for line in ("once\n", "once more\n"):
            sock.sendall(line.encode())
            *_, pid, said = stream.readline().split(" ", 4)
            assert said == line and int(pid) != started.pid, "another process serves it"
    assert counts(world)[100] > 6

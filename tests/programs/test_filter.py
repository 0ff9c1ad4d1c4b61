"""The packet filter (`slipstack ipfw`): rules by address, port, protocol and direction, in every
engine at once."""

import json
import os
import signal
import socket

from harness import test
from harness.filters import attempt, counts, ipfw, ipfw_or_nothing, is_echoed
from harness.process import until
from harness.storm import VERSION


@test(modes=("inprocess", "instance"))
def rules_decide_about_new_connections_of_every_program(world):
    for port in (8000, 9000):
        server = world.stack(*world.program("aborted.py"), port)
        world.wait_port(port, process=server)
    before = world.connect(8000)
    assert ipfw(world, "list") == "65535 allow ip from any to any\n"
    said = ipfw(world, "add", 100, "reset", "tcp", "from", "any", "to", "me", 8000, "setup", "in")
    assert said == "00100 reset tcp from any to me 8000 setup in\n"
    until(lambda: attempt(world, 8000) is ConnectionRefusedError, 10, "the rule holds")
    # Open connections continue, and another port is unaffected.
    assert is_echoed(before)
    other = attempt(world, 9000)
    assert is_echoed(other)
    assert counts(world)[100] >= 1
    ipfw(world, "add", 50, "allow", "tcp", "from", f"{world.PEER}/32", "to", "any")
    again = lambda: (got := attempt(world, 8000)) is not ConnectionRefusedError and is_echoed(got)
    until(again, 10, "an earlier rule comes first")
    ipfw(world, "delete", 50)
    ipfw(world, "add", 90, "skipto", 200, "tcp", "from", world.PEER, "to", "any")
    until(again, 10, "a rule is jumped over")
    ipfw(world, "delete", 90, 100)
    ipfw(world, "add", 100, "deny", "tcp", "from", world.PEER, "to", "any", "8000-8999")
    until(lambda: attempt(world, 8000, 0.3) is TimeoutError, 10, "nothing comes through")
    ipfw(world, "zero")
    assert counts(world)[100] == 0
    ipfw(world, "flush")
    assert ipfw(world, "list") == "65535 allow ip from any to any\n"
    assert is_echoed(before), "what was held up comes after all"
    assert is_echoed(attempt(world, 8000))


@test(modes=("inprocess", "instance"))
def datagrams_are_refused_and_answers_held_back(world):
    server = world.stack(*world.program("udp_echo.py"), 7000)
    until(lambda: "reached at" in server.errors(), 10, "the stack is up")
    with world.at_peer():
        client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    client.connect((world.STACK, 7000))
    client.settimeout(0.3)

    def outcome():
        try:
            client.send(b"hello")
            return client.recv(100)
        except OSError as error:
            return type(error)

    until(lambda: outcome() == b"answer to hello", 10, "the server answers")
    ipfw(world, "add", 100, "count", "udp", "from", world.PEER, "to", "me", "in")
    ipfw(world, "add", 200, "deny", "udp", "from", "me", 7000, "to", "any", "out")
    until(lambda: outcome() is TimeoutError, 10, "answers stay inside")
    seen = counts(world)
    assert seen[100] >= 1 and seen[200] >= 1, seen
    ipfw(world, "add", 150, "unreach", "port", "udp", "from", "any", "to", "me", 7000)
    until(lambda: outcome() is ConnectionRefusedError, 10, "the sender is told")
    ipfw(world, "flush")
    until(lambda: outcome() == b"answer to hello", 10, "the server answers again")


@test(modes=("inprocess",))
def a_thousand_rules_hold_and_outlive_the_keeper(world):
    server = world.stack(*world.program("aborted.py"), 8000)
    world.wait_port(8000, process=server)
    end = lambda **keys: {"nets": [], "ports": [], **keys}
    rule = lambda n, action, source: {
        "Add": {
            "id": 0,
            "number": n,
            "action": action,
            "protocol": 6,
            "is_v6": None,
            "direction": "In",
            "link": None,
            "part": "Setup",
            "from": end(nets=[[source, 32]]),
            "to": end(ports=[[8000, 8000]]),
        }
    }
    rules = [rule(n + 1, "Deny", f"192.0.{n // 250}.{n % 250}") for n in range(999)] + [
        rule(1000, "Reset", world.PEER)
    ]
    keeper = json.loads(world.admin("status", "--json").finish())[0]["keeper_pid"]
    control = next(world.run_dir.rglob("control"))
    for at in range(0, 1000, 250):
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as link:
            link.connect(str(control))
            link.send(
                json.dumps(
                    {"Net": {"version": VERSION, "query": {"SetFilter": rules[at : at + 250]}}}
                ).encode()
            )
            answer = json.loads(link.recv(200_000))
            assert len(answer["Net"]["FilterChanged"]) == 250, answer
    until(lambda: attempt(world, 8000) is ConnectionRefusedError, 10, "the last rule holds")
    assert counts(world)[1000] >= 1 and counts(world)[999] == 0
    os.kill(keeper, signal.SIGKILL)
    until(lambda: len(ipfw_or_nothing(world)) == 1001, 10, "the successor knows the rules")
    assert attempt(world, 8000) is ConnectionRefusedError
    for words, why in [
        (["add", "deny", "tpc", "from", "any", "to", "any"], 'what is "tpc"?'),
        (["add", 70000, "deny", "ip", "from", "any", "to", "any"], "a rule's number"),
        (["add", 500, "skipto", 400, "ip", "from", "any", "to", "any"], "skipto goes forward"),
        (["delete", 5000], "rule 5000 not found"),
        (["add", "deny", "ip", "from", "any", "to", "any", "vlan", 99], "there is no VLAN 99"),
        (
            ["add", 500, "allow", "ip", "from", "any", "to", "any", "uid", "root"],
            "whose owners it does not know",
        ),
        (["set", "disable", 31], "set 31 is always enabled"),
        (["table", 1, "delete", "10.0.0.0/8"], "there is no table 1"),
        (["table", 1, "create", "type", "iface"], "tables of type iface are not supported"),
    ]:
        wrong = world.admin("ipfw", *words)
        assert wrong.wait(10) == 1 and why in wrong.errors(), wrong.tail()

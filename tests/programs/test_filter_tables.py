"""Tables, sets and the further conditions of the packet filter's rules."""

import json
import os
import signal
import time

from harness import test
from harness.filters import attempt, counts, ipfw, ipfw_or_nothing, is_echoed
from harness.process import until


@test(modes=("inprocess",))
def a_hundred_thousand_prefixes_come_from_a_file(world):
    started = world.stack(*world.program("aborted.py"), 8000)
    world.wait_port(8000, process=started)
    path = world.folder / "table"
    v4 = [
        f"table bad add {1 + n // 65536}.{n // 256 % 256}.{n % 256}.0/24 {n % 7}"
        for n in range(90_000)
    ]
    v6 = [f"table bad add 2001:{n:x}::/32" for n in range(10_000)]
    path.write_text(
        "\n".join(
            ["table bad create", *v4, *v6, "add 100 reset tcp from table(bad) to me setup in"]
        )
    )
    begun = time.monotonic()
    ipfw(world, "-q", path)
    assert time.monotonic() - begun < 20
    assert " items: 100000," in ipfw(world, "table", "bad", "info")
    assert ipfw(world, "table", "bad", "lookup", "1.2.3.4") == "1.2.3.0/24 4\n"
    assert ipfw(world, "table", "bad", "lookup", "2001:9::1") == "2001:9::/32 0\n"
    assert is_echoed(attempt(world, 8000)), "the peer is in no prefix"
    assert (
        ipfw(world, "table", "bad", "add", "10.0.0.0/8", 5, f"{world.PEER}/32", 6)
        == f"added: 10.0.0.0/8 5\nadded: {world.PEER}/32 6\n"
    )
    until(lambda: attempt(world, 8000) is ConnectionRefusedError, 10, "it is now")
    ipfw(world, "add", 50, "allow", "tcp", "from", "table(bad,5)", "to", "any")
    assert attempt(world, 8000) is ConnectionRefusedError, "the longest prefix has another value"
    keeper = json.loads(world.admin("status", "--json").finish())[0]["keeper_pid"]
    os.kill(keeper, signal.SIGKILL)
    until(lambda: len(ipfw_or_nothing(world)) == 3, 10, "the successor knows the rules")
    assert " items: 100002," in ipfw(world, "table", "bad", "info"), "and the tables"
    ipfw(world, "table", "bad", "delete", f"{world.PEER}/32")
    again = lambda: (got := attempt(world, 8000)) is not ConnectionRefusedError and is_echoed(got)
    until(again, 10, "an exception is made")
    assert ipfw(world, "table", "bad", "list").count("\n") == 100_001
    wrong = world.admin("ipfw", "table", "bad", "destroy")
    assert wrong.wait(10) == 1 and "a rule names it" in wrong.errors(), wrong.tail()
    path.write_text(
        "table bad add 9.9.9.9\nadd 300 deny ip from any to any\nadd deny tpc from any to any\n"
    )
    wrong = world.admin("ipfw", path)
    assert wrong.wait(10) == 1 and 'table:3: ipfw: what is "tpc"?' in wrong.errors(), wrong.tail()
    assert len(ipfw_or_nothing(world)) == 3, "nothing of it has been done"


@test(modes=("inprocess", "instance"))
def sets_are_switched_and_conditions_distinguished(world):
    started = world.stack(*world.program("aborted.py"), 8000)
    world.wait_port(8000, process=started)
    ipfw(world, "set", "disable", 5)
    ipfw(
        world,
        "add",
        100,
        "set",
        5,
        "reset",
        "tcp",
        "from",
        "any",
        "to",
        "me",
        "tcpflags",
        "syn,!ack",
    )
    assert ipfw(world, "list") == "65535 allow ip from any to any\n"
    assert ipfw(world, "-S", "list").startswith(
        "# DISABLED 00100 set 5 reset tcp from any to me tcpflags syn,!ack\n"
    )
    assert is_echoed(attempt(world, 8000))
    assert ipfw(world, "set", "show").startswith("disable 5 enable 0 1 2 3 4 6 ")
    ipfw(world, "set", "enable", 5)
    until(lambda: attempt(world, 8000) is ConnectionRefusedError, 10, "the set is looked at")
    ipfw(world, "set", "move", "rule", 100, "to", 6)
    ipfw(world, "set", 5, "flush")
    assert (
        ipfw(world, "-n", "add", 90, "allow", "ip", "from", "any", "to", "any")
        == "00090 allow ip from any to any\n"
    )
    assert attempt(world, 8000) is ConnectionRefusedError
    ipfw(world, "delete", "set", 6)
    pings = (
        lambda *options: world.peer("ping", "-c", "1", "-W", "1", *options, world.STACK).wait(5)
        == 0
    )
    assert pings()
    ipfw(
        world,
        "add",
        100,
        "deny",
        "{",
        "icmp",
        "or",
        "47",
        "}",
        "from",
        "any",
        "to",
        "any",
        "icmptypes",
        "8",
        "iplen",
        "100-2000",
    )
    assert pings("-s", "10") and not pings("-s", "200")
    ipfw(world, "add", 50, "allow", "icmp", "from", "any", "to", "any", "not", "ipttl", "1-10")
    assert pings("-s", "200") and not pings("-s", "200", "-t", "5")
    assert counts(world)[100] >= 2

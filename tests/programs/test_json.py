"""Every command of the tools has --json, and an option that names the engine."""

import json

from harness import test
from harness.process import until

# In F-Stack's tools the option of the process differs; --engine is the same everywhere.
COMMANDS = (
    ("ip", "addr"),
    ("ip", "link"),
    ("ip", "-s", "link"),
    ("ip", "route"),
    ("ip", "route", "get", "10.77.0.1"),
    ("ip", "rule"),
    ("ip", "neigh"),
    ("ss", "-a"),
    ("ss", "-taniem"),
    ("ss", "-s"),
    ("sysctl", "-a"),
    ("sysctl", "net.ipv4.tcp_ecn"),
    ("nstat",),
    ("ifconfig",),
    ("ifconfig", "-l"),
    ("ifconfig", "f-stack-0"),
    ("route", "get", "10.77.0.1"),
    ("route", "show", "10.77.0.1"),
    ("arp", "-an"),
    ("ndp", "-an"),
    ("ndp", "-p"),
    ("ndp", "-r"),
    ("netstat", "-an"),
    ("netstat", "-r"),
    ("netstat", "-s"),
    ("netstat", "-i"),
    ("netstat", "-L"),
    ("ipfw", "list"),
    ("ipfw", "show"),
    ("ipfw", "table", "all", "list"),
    ("ipfw", "set", "show"),
    ("top", "-n", "1"),
    ("traffic", "-s"),
)
BY_LETTER = {
    "ip": "-p",
    "ifconfig": "-p",
    "route": "-p",
    "arp": "-p",
    "ndp": "-C",
    "netstat": "-t",
    "sysctl": "-p",
    "ipfw": "-P",
    "top": "-p",
    "traffic": "-p",
}


@test(modes=("instance",))
def every_command_prints_json_and_selects_an_engine(world):
    world.ready_instance()
    wrong = []
    for name, *words in COMMANDS:
        letter = BY_LETTER.get(name)
        for engine in [("--engine", "0")] + ([(letter, "0")] if letter else []):
            done = world.admin(name, "--json", *engine, *words)
            try:
                json.loads(done.finish())
            except (AssertionError, ValueError) as error:
                wrong.append(f"{name} --json {' '.join((*engine, *words))}: {error}")
    assert not wrong, "\n".join(wrong)


@test(modes=("inprocess",))
def monitor_and_config_print_json(world):
    program = world.stack(*world.program("udp_echo.py"), 7000)
    until(lambda: "is reached at" in program.errors(), 10, "the stack is up")
    watch = [world.slipstack, "monitor", "--run-dir", world.run_dir, "--json", "--engine", "0"]
    watching = world.process([*world.stack_ns.prefix(), *map(str, watch)])
    route = ("10.66.0.0/16", "via", world.PEER)

    def seen():
        lines = [json.loads(line) for line in watching.output().splitlines()]
        told = [it for it in lines if it["object"] == "route"]
        return {it["deleted"] for it in told if it["entry"]["dst"] == route[0]}

    # It may not watch yet when the first change is made.
    for _ in range(100):
        world.admin("ip", "route", "add", *route).finish()
        world.admin("ip", "route", "del", *route).finish()
        if seen() == {False, True}:
            break
    assert seen() == {False, True}, watching.tail()
    file = world.folder / "some.ini"
    file.write_text(
        "[dpdk]\nlcore_mask=1\nmemory=8\nport_list=0\n[port0]\nif_name=eth1\n"
        "addr=10.77.0.9\nnetmask=255.255.255.0\n"
    )
    config = [str(world.slipstack), "config"]
    told = json.loads(world.process([*config, "check", "--json", str(file)]).finish())
    assert told["processes"] == 1 and "ip" in told["used"], told
    assert [it["line"] for it in told["notes"]] == [3], told
    shown = json.loads(world.process([*config, "show", "--json", str(file)]).finish())
    assert {"option": "ip", "value": "10.77.0.9/24", "from": f"{file} line 7"} in shown, shown

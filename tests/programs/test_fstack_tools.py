"""Neighbours, routes, interfaces, counters and sysctls under the names of F-Stack's tools, with
FreeBSD's options and output."""

import os

from harness import test
from harness.process import until

MAC = "02:00:00:00:00:08"


def tool(world, name, *words):
    """Runs the command under the name of F-Stack's tool; returns its output, or its error."""
    path = world.folder / name
    if not path.exists():
        os.symlink(world.slipstack, path)
    words = [*world.stack_ns.prefix(), str(path), *[str(word) for word in words]]
    started = world.process(words, env={**os.environ, "SLIPSTACK_RUN_DIR": str(world.run_dir)})
    return started.output() if started.wait(20) == 0 else started.errors()


def rows(text):
    return [line.split() for line in text.splitlines()]


@test(modes=("instance",))
def f_stacks_tools_have_freebsds_grammar_and_output(world):
    world.use_ipv6()
    server = world.stack(*world.program("dual_echo.py"), 8000)
    world.wait_port(8000, process=server)
    neighbours(world)
    neighbours_of_ipv6(world)
    routes(world)
    interfaces(world)
    counters_and_sysctls(world)


def neighbours(world):
    known = tool(world, "ff_arp", "-p", 0, "-an")
    assert f"? ({world.PEER}) at " in known and "on f-stack-0 [ethernet]" in known, known
    tool(world, "ff_arp", "-p0", "-s", "10.77.0.8", MAC)
    line = tool(world, "ff_arp", "-p", 0, "10.77.0.8")
    assert line == f"? (10.77.0.8) at {MAC} on f-stack-0 permanent [ethernet]\n", line
    file = world.folder / "ethers"
    file.write_text(f"# two\n10.77.0.9 {MAC}\n10.77.0.10 {MAC}\n")
    tool(world, "ff_arp", "-p", 0, "-f", file)
    assert len(rows(tool(world, "ff_arp", "-i", "f-stack-0", "-a"))) == 4
    wrong = tool(world, "ff_arp", "-s", "10.77.0.11", MAC, "pub")
    assert "stays until it is deleted" in wrong, wrong
    assert "(10.77.0.8) deleted" in tool(world, "ff_arp", "-p", 0, "-d", "10.77.0.8")
    assert "no entry" in tool(world, "ff_arp", "10.77.0.8")
    # A learnt entry is deleted too, and resolved again.
    assert f"({world.PEER}) deleted" in tool(world, "ff_arp", "-d", "-a")
    assert tool(world, "ff_arp", "-a") == ""
    with world.connect(8000) as client:
        client.sendall(b"who\n")
        assert client.makefile().readline()
    until(lambda: world.PEER in tool(world, "ff_arp", "-a"), 10, "the neighbour is shown again")


def neighbours_of_ipv6(world):
    tool(world, "ff_ndp", "-C", 0, "-s", "fd00:77::8", MAC)
    head, *lines = rows(tool(world, "ff_ndp", "-C", 0, "-an"))
    assert head[0] == "Neighbor", head
    assert ["fd00:77::8", MAC, "f-stack-0", "permanent", "R"] in lines, lines
    assert "fd00:77::/64 if=f-stack-0" in tool(world, "ff_ndp", "-p")
    assert "(fd00:77::8) deleted" in tool(world, "ff_ndp", "-d", "fd00:77::8")
    tool(world, "ff_ndp", "-c")
    assert len(rows(tool(world, "ff_ndp", "-a"))) == 1


def routes(world):
    tool(world, "ff_route", "-p", 0, "add", "-net", "7.0.0.0", world.PEER, "255.0.0.0")
    tool(world, "ff_route", "-p", 0, "add", "-net", "0.0.0.0", world.PEER, "-fib", 20)
    main = rows(tool(world, "ff_netstat", "-t", 0, "-rn", "-f", "inet"))
    assert ["7.0.0.0/8", world.PEER, "UGS", "f-stack-0"] in main, main
    assert "10.77.0.0/24" in [row[0] for row in main if len(row) == 4 and row[2] == "U"], main
    fib = tool(world, "ff_netstat", "-rn", "-F", 20)
    assert fib.startswith("Routing tables (fib: 20)\n\nInternet:\n"), fib
    assert rows(fib)[-1] == ["default", world.PEER, "UGS", "f-stack-0"], fib
    assert len(rows(fib)) == 5, fib
    tool(world, "ff_sysctl", "-p", 0, "net.add_addr_allfibs=1")
    fib = rows(tool(world, "ff_netstat", "-rn", "-F", 20, "-4"))
    assert ["10.77.0.0/24", "U", "f-stack-0"] in [[row[0], *row[2:]] for row in fib if row], fib
    wide = rows(tool(world, "ff_netstat", "-rnW", "-6"))
    assert ["fd00:77::2", "UHS", "1500", "f-stack-0"] in [[it[0], *it[2:]] for it in wide if it]
    assert "fib 253 is not one of" in tool(world, "ff_netstat", "-r", "-F", 253)


def interfaces(world):
    tool(world, "ff_ifconfig", "-p", 0, "f-stack-0.10", "create")
    assert tool(world, "ff_ifconfig", "-l") == "f-stack-0 f-stack-0.10\n"
    tool(world, "ff_ifconfig", "f-stack-0.10", "down")
    assert tool(world, "ff_ifconfig", "-d").startswith("f-stack-0.10: ")
    cidr = tool(world, "ff_ifconfig", "-f", "inet:cidr", "f-stack-0")
    assert f"\tinet {world.STACK}/24 broadcast 10.77.0.255\n" in cidr, cidr
    counted = rows(tool(world, "ff_netstat", "-t", 0, "-I", "f-stack-0"))
    assert counted[1][0] == "f-stack-0" and int(counted[1][4]) > 0, counted


def counters_and_sysctls(world):
    lines = tool(world, "ff_netstat", "-s", "-p", "tcp").splitlines()
    told = {line.strip().split(" ", 1)[1]: int(line.split()[0]) for line in lines[1:]}
    assert lines[0] == "tcp:" and told["connection accepts"] > 0 and told["packets sent"] > 0, lines
    assert "unknown" in tool(world, "ff_netstat", "-s", "-p", "sctp")
    assert tool(world, "ff_sysctl", "-t", "net.inet.tcp.msl") == "net.inet.tcp.msl: integer\n"
    file = world.folder / "sysctl.conf"
    file.write_text("net.inet.tcp.msl=2000  # short\n")
    tool(world, "ff_sysctl", "-p", 0, "-f", file)
    assert tool(world, "ff_sysctl", "-x", "-n", "net.inet.tcp.msl") == "0x7d0\n"
    below = tool(world, "ff_sysctl", "net.inet.tcp")
    assert "net.inet.tcp.msl: 2000\n" in below and "net.inet.udp" not in below, below

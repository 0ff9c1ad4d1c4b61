"""Configuration files: F-Stack's config.ini starts instances and programs, and is checked and
converted."""

import signal
import socket

from harness import test
from harness.process import until

INI = """\
[dpdk]
lcore_mask={mask}
channel=4
port_list=0
{more}
[port0]
if_name=eth1
addr=10.77.0.2
netmask=255.255.255.0
broadcast=10.77.0.255
gateway=10.77.0.1
vip_addr=10.77.1.1;10.77.1.2
[freebsd.sysctl]
kern.ipc.somaxconn=32768
net.inet.tcp.msl=2000
net.add_addr_allfibs=1
"""


def config(world, more="", mask=1):
    file = world.folder / "config.ini"
    file.write_text(INI.format(more=more, mask=mask))
    world.peer_ns.ip("route", "replace", "10.77.1.0/24", "via", world.STACK)
    return file


def get(world, address, port):
    url = f"http://{address}:{port}/"
    got = world.peer("curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", "--max-time", 5, url)
    got.wait(10)
    return got.output()


@test(modes=("inprocess",))
def a_program_runs_by_config_ini_at_every_address_of_it(world):
    file = config(world, "lcore_maks=1")
    words = [world.slipstack, "run", "--config", file, "--run-dir", world.run_dir, "--"]
    server = world.beside(*words, "/usr/bin/python3", "-m", "http.server", 8000)
    world.admin("wait", 8000).finish()
    for address in (world.STACK, "10.77.1.1", "10.77.1.2"):
        assert get(world, address, 8000) == "200", address
    assert (
        "line 5: [dpdk] lcore_maks: there is no such key; the nearest is 'lcore_mask'"
        in server.errors()
    )
    assert "no meaning here" in server.errors()
    names = ["net.inet.tcp.msl", "kern.ipc.somaxconn", "net.add_addr_allfibs"]
    shown = world.admin("sysctl", "-n", *names)
    assert shown.finish().split() == ["2000", "32768", "1"], shown.tail()


@test(modes=("instance",))
def instances_of_config_ini_are_ready_when_the_command_returns(world):
    file = config(world, mask=3)
    words = [world.slipstack, "instance", "--config", file, "--run-dir", world.run_dir]
    started = world.beside(*words, "--daemon").finish()
    assert started.count("is ready on eth1") == 2, started
    try:
        run = [world.slipstack, "run", "--run-dir", world.run_dir, "--instance", 1, "--"]
        world.beside(*run, "/usr/bin/python3", "-m", "http.server", 8000)
        world.admin("wait", 8000).finish()
        assert get(world, "10.77.1.1", 8000) == "200"
        assert world.admin("sysctl", "-p", 1, "-n", "net.inet.tcp.msl").finish() == "2000\n"
        none = world.admin("sysctl", "-p", 7, "-n", "net.inet.tcp.msl")
        assert none.wait() == 1 and "no such engine" in none.errors(), none.tail()
    finally:
        stopped = world.admin("stop", "--all")
    assert {"stopped 0", "stopped 1"} <= set(stopped.output().splitlines()), stopped.tail()


@test(modes=("instance",))
def a_program_waits_for_an_instance_that_is_being_started(world):
    words = [
        world.slipstack,
        "instance",
        "--name",
        "late",
        "--run-dir",
        world.run_dir,
        *world.device_options(),
    ]
    instance = world.beside(*words)
    known = lambda: "instance late" in world.admin("status").output()
    until(known, 10, "the keeper knows the instance")
    run = [world.slipstack, "run", "--run-dir", world.run_dir, "--instance", "late", "--"]
    server = world.beside(*run, "/usr/bin/python3", "-m", "http.server", 8000)
    world.admin("wait", 8000).finish()
    instance.signal(signal.SIGTERM)


@test(modes=("inprocess",))
def a_file_is_checked_and_converted(world):
    file = config(world)
    checked = world.beside(world.slipstack, "config", "check", file).finish()
    assert "line 3: [dpdk] channel: the stack reserves no memory of DPDK's" in checked
    converted = world.beside(world.slipstack, "config", "convert", file).finish()
    toml = world.folder / "slipstack.toml"
    toml.write_text(converted)
    again = world.beside(world.slipstack, "config", "check", toml).finish()
    assert "every value can be used" in again, converted
    (world.folder / "notes").write_text("hello\n")
    for file_of_others in (toml, world.folder / "notes"):
        wrong = world.beside(world.slipstack, "config", "convert", file_of_others)
        assert wrong.wait(10) == 1 and "is no config.ini of F-Stack's" in wrong.errors()
        assert not wrong.output() and len(wrong.errors().strip().splitlines()) == 1
    text = file.read_text().replace("if_name=eth1\n", "")
    file.write_text(f"{text}[dpdk]\nallow=0000:02:00.0,mprq_en=1\nnuma_on=1\n")
    words = [world.slipstack, "config"]
    wrong = world.beside(*words, "check", file)
    assert wrong.wait(10) == 1 and "need --device dpdk" in wrong.errors(), wrong.tail()
    chosen = world.beside(*words, "check", "--device", "dpdk", file).finish()
    assert "numa_on: memory is placed" in chosen and "channel" not in chosen, chosen
    converted = world.beside(*words, "convert", file, env={"SLIPSTACK_DEVICE": "dpdk"}).finish()
    assert 'device = "dpdk:' in converted and " -a 0000:02:00.0,mprq_en=1 -- " in converted
    file.write_text("[dpdk]\nport_list=0\n[port0]\naddr=10.77.0.2\nnetmask=255.0.255.0\n")
    wrong = world.beside(world.slipstack, "config", "check", file)
    assert wrong.wait(10) == 1 and "line 5: [port0] netmask is '255.0.255.0'" in wrong.errors()


@test(modes=("inprocess", "instance"))
def sysctls_are_shown_and_set_while_programs_run(world):
    server = world.stack("/usr/bin/python3", "-m", "http.server", 8000)
    world.wait_port(8000, process=server)
    shown = lambda *words: world.admin("sysctl", *words).finish().strip()
    assert shown("-n", "net.ipv4.tcp_fin_timeout") == "60"
    assert shown("net.ipv4.tcp_fin_timeout=5") == "net.ipv4.tcp_fin_timeout = 5"
    assert shown("-n", "net.inet.tcp.finwait2_timeout") == "5000"
    assert "net.ipv4.tcp_window_scaling = 1" in shown("-a")
    # A connection that is made afterwards has no timestamps.
    assert shown("-n", "net.ipv4.tcp_timestamps=0") == "0"
    with world.connect(8000) as client:
        info = client.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 8)
    assert info[5] & 1 == 0, "timestamps"
    for wrong in (
        "hz=1000",
        "net.ipv4.tcp_ecn=9",
        "net.ipv4.tcp_ecm=1",
        "net.ipv4.tcp_max_tw_buckets=9",
    ):
        assert world.admin("sysctl", wrong).wait() != 0, wrong


@test(modes=("kernel", "inprocess", "instance"))
def keep_alive_times_of_the_stack_hold_for_sockets_without_their_own(world):
    def sysctl(name, value):
        name = f"net.ipv4.tcp_keepalive_{name}"
        if world.mode == "kernel":
            world.stack_ns.sysctl(name, value)
        else:
            world.admin("sysctl", "-w", f"{name}={value}").finish()

    server = world.stack(*world.program("aborted.py"), 8000, "probes")
    world.wait_port(8000, process=server)
    # The first one is looked up when the connection is made, the others when it is probed.
    sysctl("time", 4)
    client = world.connect(8000)
    port = client.getsockname()[1]
    client.sendall(b"x")
    assert client.recv(1) == b"x"
    # Nobody answers the probes.
    world.peer_ns.ip("addr", "del", f"{world.PEER}/24", "dev", "eth1")
    sysctl("intvl", 1)
    sysctl("probes", 2)
    until(lambda: f"end of {port}: ETIMEDOUT" in server.output(), 30, "it is given up")


def closed_port(world, kind):
    """The error that a client gets from an unused port."""
    with world.at_peer(), socket.socket(socket.AF_INET, kind) as client:
        client.settimeout(0.7)
        try:
            client.connect((world.address, 9))
            client.send(b"x")
            client.recv(1)
        except (TimeoutError, ConnectionRefusedError) as error:
            return type(error)


@test(modes=("inprocess", "instance"))
def closed_ports_are_silent_where_freebsds_blackhole_says_so(world):
    server = world.stack(*world.program("dual_echo.py"), 8000)
    world.wait_port(8000, process=server)
    switches = ("net.inet.tcp.blackhole", 2), ("net.inet.udp.blackhole", 1)
    for name, value in switches:
        world.admin("sysctl", f"{name}={value}").finish()
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        assert closed_port(world, kind) is TimeoutError, kind
    for name, _ in switches:
        world.admin("sysctl", f"{name}=0").finish()
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        assert closed_port(world, kind) is ConnectionRefusedError, kind
    assert world.admin("sysctl", "net.inet.ip.fw.dyn_udp_lifetime=30").finish().strip().endswith


@test(modes=("inprocess",))
def closed_ports_are_silent_from_the_start(world):
    options = "--sysctl", "net.inet.tcp.blackhole=2", "--sysctl", "net.inet.udp.blackhole=1"
    server = world.stack(*world.program("dual_echo.py"), 8000, options=options)
    world.wait_port(8000, process=server)
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        assert closed_port(world, kind) is TimeoutError, kind


@test(modes=("inprocess", "instance"))
def sockets_and_neighbours_are_listed(world):
    server = world.stack("/usr/bin/python3", "-m", "http.server", 8000)
    world.wait_port(8000, process=server)
    with world.connect(8000) as client:
        peer = "%s:%d" % client.getsockname()
        until(lambda: peer in world.admin("ss", "-tn").finish(), 10, "the connection is listed")
        assert "ESTABLISHED" in world.admin("netstat", "-n").finish()
        shown = world.admin("netstat", "-nC").finish()
        assert any(line.endswith("cubic") for line in shown.splitlines()), shown
        refused = world.admin("netstat", "-nx")
        assert refused.wait() == 1 and "ss -m shows the buffers" in refused.errors()
    assert "LISTEN" in world.admin("ss", "-tlnp").finish()
    assert "*.8000" in world.admin("netstat", "-an").finish()
    assert world.PEER in world.admin("arp", "-an").finish()

"""Several VLANs with gateways, tables and virtual addresses from the start, by F-Stack's config.ini
and by options: a second stack at the other end is the gateway of each VLAN and the client behind
it."""

import contextlib
import socket
import struct
import threading

from harness import test
from harness.process import until

VLANS = (10, 20, 30)
CLIENT, CLIENT6 = "55.55.55.55", "fd00:55::55"
SOL_PACKET, PACKET_AUXDATA = 263, 8

VLAN_SECTION = """\
[vlan{id}]
portid=0
addr=10.10.{id}.5
netmask=255.255.255.0
broadcast=10.10.{id}.255
gateway=10.10.{id}.1
vip_addr=110.110.{id}.1;110.110.{id}.2
addr6=fd00:10:{id}::5
prefix_len=64
gateway6=fd00:10:{id}::1
vip_addr6=fd00:110:{id}::1;fd00:110:{id}::2
vip_prefix_len=128
ipfw_pr=10.10.{id}.0 255.255.255.0;110.110.{id}.0 255.255.255.0
"""

INI = """\
[dpdk]
lcore_mask=1
port_list=0
vlan_filter=10,20,30
[port0]
if_name=eth1
addr=192.168.1.2
netmask=255.255.255.0
broadcast=192.168.1.255
gateway=192.168.1.1
"""


def addresses(tag):
    """Of the server in a VLAN, each with the client's address of its family."""
    v4 = [f"10.10.{tag}.5", f"110.110.{tag}.1", f"110.110.{tag}.2"]
    v6 = [f"fd00:10:{tag}::5", f"fd00:110:{tag}::1", f"fd00:110:{tag}::2"]
    return [(ip, CLIENT) for ip in v4] + [(ip, CLIENT6) for ip in v6]


@contextlib.contextmanager
def tags_seen(world):
    """The VLANs in which the server's packets come, by its address."""
    with world.at_peer():
        raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
    raw.bind(("eth1", 0))
    raw.setsockopt(SOL_PACKET, PACKET_AUXDATA, 1)
    raw.settimeout(0.1)
    seen, ends = {}, threading.Event()

    def listen():
        while not ends.is_set():
            with contextlib.suppress(TimeoutError):
                frame, control, _, address = raw.recvmsg(2048, 256)
                if address[2] != socket.PACKET_OUTGOING:
                    note(frame, control)

    def note(frame, control):
        tag = 0
        for level, kind, data in control:
            if (level, kind) == (SOL_PACKET, PACKET_AUXDATA) and struct.unpack_from("=I", data)[
                0
            ] & 0x10:
                tag = struct.unpack_from("=H", data, 16)[0] & 0xFFF
        if frame[12:14] == b"\x08\x00" and frame[23] == 6:
            seen.setdefault(socket.inet_ntoa(frame[26:30]), set()).add(tag)
        elif frame[12:14] == b"\x86\xdd" and frame[20] == 6:
            seen.setdefault(socket.inet_ntop(socket.AF_INET6, frame[22:38]), set()).add(tag)

    thread = threading.Thread(target=listen)
    thread.start()
    try:
        yield seen
    finally:
        ends.set()
        thread.join()
        raw.close()


def client_behind_the_gateways(world):
    """Connects to every address of the server from the far side; its output."""
    options = ["--if", "eth1", "--ip", f"{CLIENT}/32,{CLIENT6}/128", "--run-dir", world.run_dir]
    for tag in VLANS:
        options += ["--vlan", f"{tag},ip=10.10.{tag}.1/24,ip=fd00:10:{tag}::1/64"]
        options += ["--route", f"110.110.{tag}.0/24,via=10.10.{tag}.5"]
        options += ["--route", f"fd00:110:{tag}::/48,via=fd00:10:{tag}::5"]
    triples = [
        word for tag in VLANS for ip, source in addresses(tag) for word in (source, ip, 8000)
    ]
    run = [world.slipstack, "run", *options, "--", *world.program("from_sources.py"), *triples]
    return world.peer(*run).finish(40)


def check_all(world):
    with tags_seen(world) as seen:
        output = client_behind_the_gateways(world)
    for tag in VLANS:
        for ip, _ in addresses(tag):
            assert f"{ip} ok" in output, f"{ip}\n{output}"
            assert seen[ip] == {tag}, f"{ip} answered in the VLANs {seen[ip]}"


def served(world, words, own):
    server = world.beside(
        world.slipstack, "run", *words, "--", *world.program("dual_echo.py"), 8000
    )
    until(lambda: "ready" in server.output() or not server.is_running(), 15, "the server listens")
    assert own in server.errors() or "instance" in server.errors(), server.tail()
    return server


@test(modes=("inprocess", "instance"))
def config_ini_brings_vlans_with_gateways_tables_and_virtual_addresses(world):
    file = world.folder / "config.ini"
    file.write_text(INI + "".join(VLAN_SECTION.format(id=tag) for tag in VLANS))
    there = ["--run-dir", world.run_dir]
    if world.mode == "instance":
        world.beside(world.slipstack, "instance", "--config", file, *there, "--daemon").finish()
        there += ["--instance", 0]
    else:
        there += ["--config", file]
    try:
        served(world, there, "10.10.10.5/24")
        check_all(world)
        assert (
            "default via 10.10.20.1 dev eth1.20"
            in world.admin("ip", "route", "show", "table", 1).output()
        )
        assert "110.110.30.2" in world.admin("ifconfig", "f-stack-0.30").output()
    finally:
        world.admin("stop", "--all")


@test(modes=("inprocess",))
def options_bring_several_vlans_beside_the_own_link(world):
    """Untagged traffic continues beside them, and a second start with the same arguments joins
    the stack."""
    vlans = [
        word
        for tag in VLANS
        for word in (
            "--vlan",
            f"{tag},"
            + ",".join(f"ip={ip}" for ip in (f"10.10.{tag}.5/24", f"fd00:10:{tag}::5/64"))
            + "".join(
                f",ip={ip}/{32 if '.' in ip else 128}"
                for ip, _ in addresses(tag)
                if "110:" in ip or "110." in ip
            )
            + f",gw=10.10.{tag}.1,gw=fd00:10:{tag}::1",
        )
    ]
    own = ["--run-dir", world.run_dir, "--if", "eth1", "--ip", f"{world.STACK}/24", *vlans]
    served(world, own, world.STACK)
    check_all(world)
    with world.connect(8000) as client:
        client.sendall(b"who\n")
        assert world.PEER in client.makefile().readline()
    world.beside(world.slipstack, "run", *own, "--", "true").finish()
    # One that is not there is added; one whose address is another is not changed.
    other = [*own, "--vlan", "40,ip=10.10.40.5/24"]
    world.beside(world.slipstack, "run", *other, "--", "true").finish()
    assert "10.10.40.5/24" in world.admin("ip", "addr").finish()
    other[-1] = "40,ip=10.10.40.6/24"
    refused = world.beside(world.slipstack, "run", *other, "--", "true")
    assert refused.wait(10) != 0 and "10.10.40.6/24" in refused.errors(), refused.tail()


@test(modes=("inprocess",))
def a_socket_chooses_its_vlan_by_mark_table_or_device(world):
    """A listener of one VLAN's device is not visible in another."""
    far = ["--if", "eth1", "--ip", f"{CLIENT}/32,{CLIENT6}/128", "--run-dir", world.run_dir]
    near = ["--if", "eth1", "--run-dir", world.run_dir, "--rule", "mark=20,table=20"]
    for tag in VLANS:
        far += ["--vlan", f"{tag},ip=10.10.{tag}.1/24,ip=fd00:10:{tag}::1/64"]
        gateways = f"gw=10.10.{tag}.1,gw=fd00:10:{tag}::1" + (",table=254" if tag == 10 else "")
        near += ["--vlan", f"{tag},ip=10.10.{tag}.5/24,ip=fd00:10:{tag}::5/64,{gateways}"]
    words = [*world.program("told_addresses.py"), 8000, CLIENT, CLIENT6]
    server = world.peer(world.slipstack, "run", *far, "--", *words)
    until(lambda: "ready" in server.output() or not server.is_running(), 15, "the server listens")
    words = [*world.program("chosen_ways.py"), CLIENT, CLIENT6, 8000]
    client = world.beside(world.slipstack, "run", *near, "--", *words)
    until(
        lambda: "listening" in client.output() or not client.is_running(),
        30,
        "the client has asked",
    )
    seen = {line.split()[0]: line.split()[1:] for line in client.output().splitlines()}
    for way, tag in {"plain": 10, "mark": 20, "table": 30, "device": 20, "released": 10}.items():
        assert (
            seen.get(way) == [f"10.10.{tag}.5", f"fd00:10:{tag}::5"] * 2
        ), f"{way}: {client.tail()}"
    assert seen.get("message") == [
        "10.10.20.5",
        "10.10.10.5",
        "fd00:10:20::5",
        "fd00:10:10::5",
    ], client.tail()
    assert seen.get("named") == ["eth1.20"], client.tail()
    inside = [world.slipstack, "run", *far, "--"]
    for tag, outcome in ((10, "refused"), (20, "connected")):
        ask = (
            "import socket; s = socket.socket(); s.settimeout(5);"
            f" print(s.connect_ex(('10.10.{tag}.5', 8001)))"
        )
        code = world.peer(*inside, "/usr/bin/python3", "-c", ask).finish().strip()
        assert code == {"refused": "111", "connected": "0"}[outcome], f"VLAN {tag}: {code}"
    until(
        lambda: "accepted at 10.10.20.5" in client.output(),
        10,
        "the listener of VLAN 20 has its connection",
    )

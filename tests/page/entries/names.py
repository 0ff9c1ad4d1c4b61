"""Name servers and other services over UDP."""

import os
import re
import socket
import struct

from harness.process import until
from page import Outcome, absent, entry
from page import tools

ZONE = (
    "$ORIGIN page.test.\n$TTL 60\n@ SOA ns a 1 2 3 4 5\n NS ns\nns A 192.0.2.1\nwww A 192.0.2.7\n"
)


def zone(world):
    text = (
        ZONE
        + "".join(f"n{i} A 10.9.{i // 256}.{i % 256}\n" for i in range(1000))
        + "big TXT "
        + " ".join(f'"{"t" * 200}{i}"' for i in range(15))
        + "\n"
    )
    path = world.folder / "page.zone"
    path.write_text(text)
    path.chmod(0o644)
    return path


def question(name, kind=1, number=7, flags=0x100):
    labels = b"".join(bytes([len(label)]) + label.encode() for label in name.split("."))
    return struct.pack(">6H", number, flags, 1, 0, 0, 0) + labels + struct.pack(">B2H", 0, kind, 1)


def served(world, port=53, name="www.page.test", address="192.0.2.7"):
    """Answers over UDP and TCP, then dnsperf's rate."""
    until(lambda: is_answered(world, port, name, address), 20, "the server answers")
    with world.connect(port) as sock:
        asked = question("big.page.test", 16)
        sock.sendall(struct.pack(">H", len(asked)) + asked)
        length = struct.unpack(">H", tools.receive(sock, 2))[0]
        answer = tools.receive(sock, length)
        assert name != "www.page.test" or (b"t" * 200 + b"14") in answer, "the long answer over TCP"
    queries = world.folder / "queries"
    queries.write_text(
        "".join(f"n{i}.page.test A\n" for i in range(1000))
        if name == "www.page.test"
        else f"{name} A\n"
    )
    text = tools.measure(
        world,
        "dnsperf",
        "-s",
        world.address,
        "-p",
        port,
        "-d",
        queries,
        "-l",
        tools.SECONDS,
        "-c",
        8,
        "-q",
        64,
        seconds=30,
    )
    lost = int(re.search(r"Queries lost:\s+(\d+)", text)[1])
    assert lost == 0, f"{lost} queries lost"
    return Outcome(
        "answers over UDP and TCP",
        float(re.search(r"Queries per second:\s+([\d.]+)", text)[1]),
        "queries/s",
    )


def is_answered(world, port, name, address):
    try:
        answer = tools.ask_udp(world, world.address, port, question(name), 1, 1)
    except (OSError, AssertionError):
        return False
    return socket.inet_aton(address) in answer


@entry("BIND", packages="bind9 dnsperf")
def bind(world):
    path = zone(world)
    conf = world.folder / "named.conf"
    conf.write_text(
        f'options {{ directory "{world.folder}"; listen-on port 53 {{ {world.address}; }};'
        f' listen-on-v6 {{ none; }}; recursion no; pid-file "{world.folder}/named.pid";'
        f' session-keyfile "{world.folder}/key"; }};\ncontrols {{ }};\nzone "page.test" {{ type'
        f' primary; file "{path}"; }};\n'
    )
    world.stack(tools.sbin("named"), "-g", "-n", 2, "-c", conf)
    return served(world)


@entry("unbound", packages="unbound dnsperf")
def unbound(world):
    conf = world.folder / "unbound.conf"
    records = "".join(
        f' local-data: "n{i}.page.test A 10.9.{i // 256}.{i % 256}"\n' for i in range(1000)
    )
    conf.write_text(
        f'server:\n interface: {world.address}\n num-threads: 2\n username: ""\n chroot: ""\n'
        f' do-daemonize: no\n use-syslog: no\n pidfile: "{world.folder}/u.pid"\n directory:'
        f' "{world.folder}"\n access-control: 0.0.0.0/0 allow\n local-zone: "page.test" static\n'
        f' local-data: "www.page.test A 192.0.2.7"\n{records}remote-control:\n control-enable: no\n'
    )
    text = " ".join(f'"{"t" * 200}{i}"' for i in range(15))
    conf.write_text(
        conf.read_text().replace(
            "remote-control:", f" local-data: 'big.page.test TXT {text}'\nremote-control:"
        )
    )
    world.stack(tools.sbin("unbound"), "-d", "-c", conf)
    return served(world)


@entry("Knot, two UDP workers", packages="knot dnsperf")
def knot(world):
    path = zone(world)
    conf = world.folder / "knot.conf"
    conf.write_text(
        f"server:\n  rundir: {world.folder}\n  listen: {world.address}@53\n  udp-workers: 2\n "
        f" tcp-workers: 1\ndatabase:\n  storage: {world.folder}\nzone:\n  - domain: page.test\n   "
        f" file: {path}\n"
    )
    world.stack(tools.sbin("knotd"), "-c", conf)
    return served(world)


@entry("NSD", packages="nsd dnsperf")
def nsd(world):
    path = zone(world)
    conf = world.folder / "nsd.conf"
    conf.write_text(
        f'server:\n ip-address: {world.address}\n server-count: 1\n username: ""\n zonesdir:'
        f' "{world.folder}"\n database: ""\n pidfile: "{world.folder}/nsd.pid"\n xfrdfile:'
        f' "{world.folder}/xfrd"\n zonelistfile: "{world.folder}/zones"\n rrl-ratelimit:'
        f' 0\nremote-control:\n control-enable: no\nzone:\n name: page.test\n zonefile: "{path}"\n'
    )
    world.stack(tools.sbin("nsd"), "-d", "-c", conf)
    return served(world)


@entry("dnsmasq", packages="dnsmasq-base dnsperf")
def dnsmasq(world):
    hosts = world.folder / "hosts"
    hosts.write_text("192.0.2.7 known.test\n")
    words = [
        "--keep-in-foreground",
        "--conf-file=/dev/null",
        "--port=53",
        "--no-resolv",
        "--no-hosts",
        "--user=root",
    ]
    world.stack(
        tools.sbin("dnsmasq"), *words, f"--addn-hosts={hosts}", f"--pid-file={world.folder}/pid"
    )
    return served(world, name="known.test")


absent("CoreDNS", "no package of Debian, and a Go program: its sockets cannot be taken over")


@entry("coturn", packages="coturn")
def coturn(world):
    words = [
        "-n",
        "-L",
        world.address,
        "-p",
        3478,
        "--no-tls",
        "--no-dtls",
        "--no-cli",
        "--log-file",
        "stdout",
        "--pidfile",
        world.folder / "pid",
    ]
    server = world.stack("turnserver", *words, "--db", world.folder / "db", cwd=world.folder)
    world.wait_port(3478, 15, process=server)
    asked = struct.pack(">HHI", 1, 0, 0x2112A442) + os.urandom(12)
    answer = tools.ask_udp(world, world.address, 3478, asked)
    assert answer[:2] == b"\x01\x01" and answer[8:20] == asked[8:20], answer
    return Outcome("a binding request over UDP")


@entry("snmpd", packages="snmpd snmp")
def snmpd(world):
    conf = world.folder / "snmpd.conf"
    conf.write_text("rocommunity page\nsysLocation here\n")
    words = ["-f", "-Lo", "-C", "-c", conf, "-p", world.folder / "pid", f"udp:{world.address}:161"]
    world.stack(tools.sbin("snmpd"), *words)
    get = [
        "snmpget",
        "-v2c",
        "-c",
        "page",
        "-Oqv",
        "-t",
        "1",
        "-r",
        "8",
        world.address,
        "1.3.6.1.2.1.1.6.0",
    ]
    assert world.peer(*get).finish(20).strip().strip('"') == "here"
    walked = world.peer(
        "snmpbulkwalk", "-v2c", "-c", "page", "-Oqn", world.address, "1.3.6.1.2.1.1"
    ).finish(20)
    assert walked.count("\n") > 10, walked
    return Outcome("a value and a walk")


@entry("atftpd", packages="atftpd atftp")
def atftpd(world):
    folder = world.folder / "tftp"
    path = tools.blob(world, "tftp/big.bin", 1_000_000)
    folder.chmod(0o777)
    world.stack(
        tools.sbin("atftpd"),
        "--daemon",
        "--no-fork",
        "--user",
        "root.root",
        "--bind-address",
        world.address,
        "--logfile",
        "-",
        folder,
    )
    into = world.folder / "got"

    def is_fetched():
        return (
            world.peer("atftp", "-g", "-r", "big.bin", "-l", into, world.address).wait(20) == 0
            and into.read_bytes() == path.read_bytes()
        )

    until(is_fetched, 30, "the file comes")
    return Outcome("1 MB down")


PDNS = """launch=bind
bind-config={folder}/named.conf
local-address={address}
local-port=5300
socket-dir={folder}
daemon=no
guardian=no
receiver-threads=2
reuseport=yes
setuid=
setgid=
disable-syslog=yes
security-poll-suffix=
"""
RECURSOR = """local-address={address}
local-port=5301
query-local-address={address}
socket-dir={folder}/recursor
forward-zones=page.test={address}:5300
threads=2
pdns-distributes-queries=no
reuseport=yes
dont-query=
daemon=no
allow-from=0.0.0.0/0
dnssec=off
security-poll-suffix=
disable-syslog=yes
write-pid=no
setuid=
setgid=
"""
DNSDIST = """for i = 1, 2 do
  addLocal("{address}:53", {{reusePort=true}})
end
setACL("0.0.0.0/0")
setSecurityPollSuffix("")
newServer({{address="{address}:{behind}", sockets=2, checkName="www.page.test."}})
"""


def power_dns(world):
    """The name server with two receivers, on port 5300."""
    path = zone(world)
    (world.folder / "named.conf").write_text(
        f'zone "page.test" {{ type master; file "{path}"; }};\n'
    )
    conf = world.folder / "pdns.conf"
    conf.write_text(PDNS.format(folder=world.folder, address=world.address))
    server = world.stack(tools.sbin("pdns_server"), f"--config-dir={world.folder}")
    world.wait_port(5300, 20, process=server)
    # A recursor that gets no answer does not ask again for a minute.
    until(lambda: is_answered(world, 5300, "www.page.test", "192.0.2.7"), 20, "it answers")
    return server


def power_recursor(world):
    (world.folder / "recursor").mkdir()
    conf = world.folder / "recursor.conf"
    conf.write_text(RECURSOR.format(folder=world.folder, address=world.address))
    server = world.stack(tools.sbin("pdns_recursor"), f"--config-dir={world.folder}")
    world.wait_port(5301, 20, process=server)
    return server


def dnsdist(world, behind):
    conf = world.folder / "dnsdist.conf"
    conf.write_text(DNSDIST.format(address=world.address, behind=behind))
    server = world.stack("dnsdist", "--supervised", "--disable-syslog", "-C", conf)
    world.wait_port(53, 20, process=server)
    return server


@entry("PowerDNS, two receivers", packages="pdns-server pdns-backend-bind dnsperf")
def power_dns_alone(world):
    power_dns(world)
    return served(world, port=5300)


@entry("PowerDNS recursor", packages="pdns-recursor pdns-server pdns-backend-bind dnsperf")
def power_recursor_alone(world):
    power_dns(world)
    power_recursor(world)
    return served(world, port=5301)


@entry("dnsdist, two sockets", packages="dnsdist pdns-server pdns-backend-bind dnsperf")
def dnsdist_before(world):
    """Before the name server. It drops queries while a busy machine has it think that the server
    is down, so they are few."""
    power_dns(world)
    dnsdist(world, 5300)
    until(lambda: is_answered(world, 53, "www.page.test", "192.0.2.7"), 20, "it answers")
    queries = world.folder / "queries"
    queries.write_text("".join(f"n{i}.page.test A\n" for i in range(1000)))
    for protocol in ("udp", "tcp"):
        words = ["-m", protocol, "-s", world.address, "-d", queries, "-c", 4, "-q", 8, "-n", 3]
        text = world.peer("dnsperf", *words).finish(40)
        assert re.search(r"Queries completed:\s+3000 ", text), text[-800:]
    return Outcome("3000 answers over UDP, 3000 over TCP")

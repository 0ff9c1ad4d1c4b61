"""Servers by which machines are looked after: printing, compilation, watching."""

import os

from harness.process import descendants, until
from page import Outcome, entry
from page import tools

CUPS = """Port 6310
Browsing No
DefaultAuthType None
<Location />
  Order allow,deny
  Allow all
</Location>
<Policy default>
  <Limit All>
    Order deny,allow
    Allow all
  </Limit>
</Policy>
"""
CUPS_FILES = """AccessLog {folder}/access
ErrorLog {folder}/error
PageLog {folder}/page
CacheDir {folder}/cache
DocumentRoot {folder}/docs
RequestRoot {folder}/spool
ServerRoot {folder}/root
StateDir {folder}/state
TempDir {folder}/spool/tmp
"""
PRINTER = """<DefaultPrinter page>
DeviceURI file:///dev/null
State Stopped
Accepting Yes
</DefaultPrinter>
"""
IPP = """{
  NAME "page"
  OPERATION Get-Printer-Attributes
  GROUP operation-attributes-tag
  ATTR charset attributes-charset utf-8
  ATTR language attributes-natural-language en
  ATTR uri printer-uri $uri
  STATUS successful-ok
}
"""


def twice(world, port, words, session, **keywords):
    """Sessions with a server, and with another on the same port when SIGTERM has ended it."""
    for _ in range(2):
        server = world.stack(*words, **keywords)
        world.wait_port(port, 20, process=server)
        session(server)
        below = descendants(server.pid)
        server.stop()
        ended = lambda: not any(os.path.exists(f"/proc/{pid}/exe") for pid in below)
        until(ended, 10, "its children have ended")


@entry("cups: lp, lpstat, ipptool", packages="cups-daemon cups-client cups-ipp-utils", timeout=120)
def cups(world):
    folder, path = world.folder / "cups", tools.blob(world, "cups/docs/big.bin")
    for name in ("cache", "spool/tmp", "root", "state"):
        (folder / name).mkdir(parents=True)
    (folder / "conf").write_text(CUPS)
    (folder / "files").write_text(CUPS_FILES.format(folder=folder))
    (folder / "root/printers.conf").write_text(PRINTER)
    (folder / "page.test").write_text(IPP)
    at, spool = f"{world.address}:6310", folder / "spool"

    def session(_):
        for _ in range(2):
            words = ["lp", "-h", at, "-d", "page", "-o", "raw", path]
            printing = [world.peer(*words) for _ in range(3)]
            jobs = [client.finish(20).split()[3].rpartition("-")[2] for client in printing]
            for job in map(int, jobs):
                assert (spool / f"d{job:05}-001").read_bytes() == path.read_bytes()
            assert "printer page" in world.peer("lpstat", "-h", at, "-p").finish(20)
            uri = f"ipp://{at}/printers/page"
            said = world.peer("ipptool", "-tv", uri, folder / "page.test").finish(20)
            assert "printer-name (nameWithoutLanguage) = page" in said, said
            tools.fetch(world, f"http://{at}/big.bin", path)

    words = [tools.sbin("cupsd"), "-f", "-c", folder / "conf", "-s", folder / "files"]
    twice(world, 6310, words, session)
    return Outcome("3 MB into a stopped printer's queue 12 times, 3 MB down")


@entry("distccd and distcc", packages="distcc gcc", timeout=120)
def distccd(world):
    source, own = world.folder / "page.c", world.folder / "own.o"
    table = ",".join(map(str, os.urandom(150_000)))
    source.write_text(f"unsigned char page[] = {{{table}}};\n")
    world.beside("gcc", "-c", source, "-o", own).finish(30)
    log, state = world.folder / "log", world.folder / "state"
    log.touch()
    log.chmod(0o666)
    state.mkdir()
    words = ["distccd", "--no-detach", "--daemon", "--user", "nobody", "--jobs", 3]
    words += ["--allow", world.peer_address, "--listen", world.address, "--log-file", log]

    def session(_):
        for how in ("", ",lzo"):
            hosts = f"{world.address}:3632/6{how}"
            env = {"DISTCC_HOSTS": hosts, "DISTCC_FALLBACK": 0, "DISTCC_DIR": state}
            objects = [world.folder / f"{number}.o" for number in range(6)]
            words = ["distcc", "gcc", "-c", source, "-o"]
            for client in [world.peer(*words, path, env=env) for path in objects]:
                client.finish(60)
            for path in objects:
                assert path.read_bytes() == own.read_bytes(), "the object differs"
                path.unlink()

    twice(world, 3632, words, session)
    return Outcome("0.5 MB up, 0.2 MB down, 24 times")


@entry("munin-node", packages="munin-node")
def munin_node(world):
    folder = world.folder / "munin"
    (folder / "plugins").mkdir(parents=True)
    values = "".join(f"v{n}.value {int.from_bytes(os.urandom(3))}\n" for n in range(3000))
    (folder / "values").write_text(values)
    plugin = folder / "plugins/page"
    plugin.write_text(f"#!/bin/sh\nexec cat {folder}/values\n")
    plugin.chmod(0o755)
    (folder / "conf").write_text(
        f"log_file {folder}/log\npid_file {folder}/pid\nbackground 0\nsetsid 0\nuser root\n"
        f"group root\nallow ^{world.peer_address}$\nhost {world.address}\nport 4949\n"
    )

    def session(_):
        for _ in range(4):
            with world.connect(4949) as sock:
                assert b"munin node" in sock.recv(1000)
                for _ in range(3):
                    sock.sendall(b"fetch page\n")
                    assert tools.receive(sock, len(values) + 2).decode() == values + ".\n"
                sock.sendall(b"quit\n")
                assert sock.recv(1) == b""

    bind = 'mount --bind "$1/plugins" /etc/munin/plugins && shift && exec "$@"'
    words = [tools.sbin("munin-node"), "--config", folder / "conf"]
    twice(world, 4949, words, session, before=["sh", "-c", bind, "sh", str(folder)])
    return Outcome("50 kB down, 24 times")


@entry(
    "nrpe and check_nrpe, with TLS and without",
    packages="nagios-nrpe-server nagios-nrpe-plugin",
    timeout=120,
)
def nrpe(world):
    folder = world.folder / "nrpe"
    folder.mkdir()
    folder.chmod(0o777)
    data = os.urandom(6000).hex()
    (folder / "data").write_text(data)
    conf = folder / "conf"
    conf.write_text(
        f"server_address={world.address}\nserver_port=5666\nnrpe_user=nobody\n"
        f"nrpe_group=nogroup\nallowed_hosts={world.peer_address}\npid_file={folder}/pid\n"
        f"log_file={folder}/log\ncommand[page]=/bin/cat {folder}/data\n"
    )
    for how in ([], ["-n"]):
        ask = ["/usr/lib/nagios/plugins/check_nrpe", *how, "-t", 20, "-c", "page"]
        ask += ["-H", world.address, "-p", 5666]

        def session(_):
            for _ in range(2):
                for client in [world.peer(*ask) for _ in range(6)]:
                    assert client.finish(20).strip() == data

        twice(world, 5666, [tools.sbin("nrpe"), "-f", *how, "-c", conf], session)
    return Outcome("12 kB down, 48 times")


@entry("zabbix-agent, three listeners", packages="zabbix-agent")
def zabbix_agent(world):
    folder = world.folder / "zabbix"
    folder.mkdir()
    folder.chmod(0o777)
    data = os.urandom(30_000).hex()
    (folder / "data").write_text(data)
    conf = folder / "conf"
    conf.write_text(
        f"Server={world.peer_address}\nListenIP={world.address}\nListenPort=10055\n"
        f"StartAgents=3\nLogType=console\nPidFile={folder}/pid\nTimeout=10\n"
        f"UserParameter=page,cat {folder}/data\n"
    )

    def value(key):
        with world.connect(10055) as sock:
            sock.sendall(b"ZBXD\1" + len(key).to_bytes(8, "little") + key.encode())
            head = tools.receive(sock, 13)
            assert head[:5] == b"ZBXD\1", head
            body = tools.receive(sock, int.from_bytes(head[5:9], "little"))
            assert sock.recv(1) == b""
            return body.decode()

    def session(_):
        for _ in range(10):
            assert value("agent.ping") == "1"
            assert value("page") == data
        # It connects to a port at the peer that refuses.
        assert value(f"net.tcp.port[{world.peer_address},11]") == "0"

    twice(world, 10055, [tools.sbin("zabbix_agentd"), "-f", "-c", conf], session)
    return Outcome("60 kB down, 20 times")

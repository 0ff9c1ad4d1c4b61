"""Servers that fork, pass descriptors, or replace their processes."""

import ftplib
import os
import signal
import smtplib
import sys
import time

from harness.process import descendants, until
from page import Outcome, entry
from page import tools

BOTH = "3 MB down, 3 MB up"

PROFTPD = """ServerName page
ServerType standalone
DefaultAddress {address}
SocketBindTight on
Port 2121
User nobody
Group nogroup
UseIPv6 off
RequireValidShell off
PidFile {folder}/proftpd.pid
ScoreboardFile {folder}/scoreboard
DelayTable {folder}/delay
SystemLog {folder}/log
WtmpLog off
UseFtpUsers off
AuthOrder mod_auth_unix.c
<Anonymous {folder}/ftp>
  User nobody
  Group nogroup
  UserAlias anonymous nobody
  AnonRequirePassword off
  <Limit ALL>
    AllowAll
  </Limit>
</Anonymous>
"""


@entry("ProFTPD, a child each", packages="proftpd-core")
def proftpd(world):
    root = world.folder / "ftp"
    root.mkdir()
    root.chmod(0o777)
    conf = world.folder / "proftpd.conf"
    conf.write_text(PROFTPD.format(folder=world.folder, address=world.address))
    server = world.stack(tools.sbin("proftpd"), "-n", "-q", "-c", conf)
    world.wait_port(2121, process=server)
    path = tools.blob(world)
    for passive in (True, False, True):
        with world.at_peer(), ftplib.FTP(timeout=15) as client:
            client.connect(world.address, 2121)
            client.login("anonymous", "x")
            client.set_pasv(passive)
            with open(path, "rb") as file:
                client.storbinary("STOR up.bin", file)
            got = bytearray()
            client.retrbinary("RETR up.bin", got.extend)
            client.delete("up.bin")
            assert got == path.read_bytes(), f"passive={passive}: bytes differ"
    return Outcome(f"{BOTH}, passive and active, three sessions")


HAPROXY = """global
  stats socket {folder}/sock expose-fd listeners level admin
defaults
  mode http
  timeout client 20s
  timeout server 20s
  timeout connect 5s
frontend web
  bind {address}:8080
  default_backend back
backend back
  server one {peer}:9000
"""


@entry("haproxy -W, five reloads", packages="haproxy")
def haproxy_master(world):
    tools.digest_server(world, 9000)
    conf = world.folder / "haproxy.cfg"
    conf.write_text(
        HAPROXY.format(folder=world.folder, address=world.address, peer=world.peer_address)
    )
    words = ["-W", "-S", f"{world.folder}/master", "-f", conf]
    server = world.stack(tools.sbin("haproxy"), *words)
    world.wait_port(8080, process=server)
    url = f"http://{world.address}:8080"
    path = tools.blob(world)
    tools.upload(world, f"{url}/up", path)
    for _ in range(5):
        before = set(descendants(server.pid))
        load = world.peer("ab", "-q", "-n", 400, "-c", 4, f"{url}/")
        time.sleep(0.1)
        server.signal(signal.SIGUSR2)
        tools.fetch(world, f"{url}/big.bin", path)
        text = load.finish(30)
        assert "Failed requests:        0" in text, text
        until(lambda: not before & set(descendants(server.pid)), 15, "the old worker ends")
    tools.upload(world, f"{url}/up", path)
    return Outcome(f"{BOTH}, and under each reload")


SQUID = """workers 2
http_port {address}:3128
http_access allow all
cache_log {folder}/log
access_log none
pid_filename {folder}/squid.pid
coredump_dir {folder}
cache_effective_user proxy
shutdown_lifetime 1 seconds
pinger_enable off
cache_mem 32 MB
via off
"""


@entry("squid, two workers", packages="squid wrk", timeout=120)
def squid_workers(world):
    base = tools.digest_server(world, 9000)
    world.folder.chmod(0o777)
    conf = world.folder / "squid.conf"
    conf.write_text(SQUID.format(folder=world.folder, address=world.address))
    words = ["--foreground", "-n", f"page{os.getpid()}", "-f", conf]
    server = world.stack(tools.sbin("squid"), *words)
    world.wait_port(3128, 30, process=server)
    path = tools.blob(world)
    proxy = ["-x", f"http://{world.address}:3128"]
    for _ in range(4):
        tools.fetch(world, f"{base}/big.bin", path, *proxy)
        tools.upload(world, f"{base}/up", path, *proxy)
    rate = tools.proxied(world, 3128, f"{base}/")
    server.stop(20)
    return Outcome(f"{BOTH}, four times", rate, "requests/s")


@entry("exim (SMTP)", packages="exim4-daemon-light", timeout=120)
def exim(world):
    folder = world.folder / "exim"
    for name in ("spool", "log", "mail"):
        (folder / name).mkdir(parents=True)
        (folder / name).chmod(0o777)
        os.chown(folder / name, *tools.owner("Debian-exim"))
    conf = folder / "exim.conf"
    conf.write_text(
        f"exim_path = /usr/sbin/exim4\nspool_directory = {folder}/spool\n"
        f"log_file_path = {folder}/log/%slog\nprimary_hostname = page.test\n"
        f"local_interfaces = {world.address}\ndaemon_smtp_ports = 2525\n"
        "domainlist local_domains = page.test\nacl_smtp_rcpt = accept\nacl_smtp_data = accept\n"
        "keep_environment =\nsmtp_accept_max = 50\nrfc1413_query_timeout = 0s\n"
        "begin acl\naccept:\n  accept\nbegin routers\nall:\n  driver = accept\n"
        "  transport = file\nbegin transports\nfile:\n  driver = appendfile\n"
        f"  file = {folder}/mail/box\n  user = Debian-exim\n"
    )
    server = world.stack("/usr/sbin/exim4", "-bdf", "-q1h", "-C", conf)
    world.wait_port(2525, 30, process=server)
    mark = "".join(f"{number:05} {'x' * 60}\r\n" for number in range(10_000))
    with world.at_peer():
        for number in range(3):
            with smtplib.SMTP(world.address, 2525, timeout=20) as client:
                client.sendmail("a@page.test", ["b@page.test"], f"Subject: {number}\r\n\r\n{mark}")
    box = folder / "mail" / "box"
    wanted = mark.replace("\r", "")
    until(
        lambda: box.exists() and box.read_text().count(wanted) == 3, 30, "three letters are there"
    )
    return Outcome("0.7 MB in, three times")


@entry("xinetd: stream, datagram, internal", packages="xinetd")
def xinetd(world):
    conf = world.folder / "xinetd.conf"
    common = f"  bind = {world.address}\n  user = root\n  type = UNLISTED\n  disable = no\n"
    once = tools.PEER_SERVER.with_name("once.py")
    conf.write_text(
        f"service cat\n{{\n  socket_type = stream\n  protocol = tcp\n  wait = no\n  port = 7000\n"
        f"  server = /bin/cat\n{common}}}\n"
        "service asked\n{\n  socket_type = dgram\n  protocol = udp\n  wait = yes\n  port = 7001\n"
        f"  server = {sys.executable}\n  server_args = {once}\n{common}}}\n"
        "service echo\n{\n  socket_type = stream\n  protocol = tcp\n  wait = no\n"
        f"  type = INTERNAL UNLISTED\n  port = 7002\n  user = root\n  bind = {world.address}\n}}\n"
    )
    server = world.stack(
        tools.sbin("xinetd"), "-dontfork", "-f", conf, "-pidfile", world.folder / "pid"
    )
    world.wait_port(7000, process=server)
    for number in range(5):
        asked = b"ask%d" % number
        assert tools.ask_udp(world, world.address, 7001, asked, 1, 8) == asked
    for port in (7000, 7002, 7000):
        data = os.urandom(1_000_000)
        with world.connect(port) as sock:
            tools.echo(sock, data)
    return Outcome("1 MB echoed three times, five datagrams")


APP = """import hashlib
def application(environ, start_response):
    body = environ['wsgi.input'].read(int(environ.get('CONTENT_LENGTH') or 0))
    start_response('200 OK', [('Content-Type', 'text/plain')])
    return [hashlib.sha256(body).hexdigest().encode()]
"""


@entry("uWSGI emperor, lazy-apps, reload", packages="uwsgi-core uwsgi-plugin-python3")
def uwsgi_emperor(world):
    vassals = world.folder / "vassals"
    vassals.mkdir()
    (world.folder / "app.py").write_text(APP)
    ini = vassals / "one.ini"
    ini.write_text(
        f"[uwsgi]\nplugin = python3\nhttp-socket = {world.address}:8080\nmaster = true\n"
        f"processes = 2\nlazy-apps = true\nchdir = {world.folder}\nwsgi-file = app.py\n"
        "buffer-size = 32768\ndie-on-term = true\n"
    )
    server = world.stack("uwsgi", "--emperor", vassals, "--die-on-term")
    world.wait_port(8080, 20, process=server)
    path = tools.blob(world)
    url = f"http://{world.address}:8080"
    tools.upload(world, f"{url}/up", path)
    for _ in range(2):
        before = set(descendants(server.pid))
        time.sleep(1.1)
        os.utime(ini)
        until(lambda: len(set(descendants(server.pid)) - before) >= 2, 20, "the vassal is reloaded")
        for _ in range(4):
            tools.upload(world, f"{url}/up", path, "--retry", "3", "--retry-connrefused")
    return Outcome("3 MB up, ten times")


SMB = """[global]
  interfaces = {address}/24
  bind interfaces only = no
  smb ports = 4450
  security = user
  map to guest = bad user
  guest account = root
  private dir = {folder}/private
  lock directory = {folder}/lock
  state directory = {folder}/state
  cache directory = {folder}/cache
  pid directory = {folder}/pid
  ncalrpc dir = {folder}/ncalrpc
  log file = {folder}/log.smbd
  load printers = no
  disable spoolss = yes
  server role = standalone server
[page]
  path = {folder}/share
  read only = no
  guest ok = yes
  force user = root
"""


@entry("samba and smbclient", packages="samba smbclient", timeout=120)
def samba(world):
    folder = world.folder / "smb"
    for name in ("private", "lock", "state", "cache", "pid", "ncalrpc", "share"):
        (folder / name).mkdir(parents=True)
    conf = folder / "smb.conf"
    conf.write_text(SMB.format(folder=folder, address=world.address))
    server = world.stack(tools.sbin("smbd"), "-F", "--no-process-group", "-s", conf)
    world.wait_port(4450, 30, process=server)
    path, back = tools.blob(world), world.folder / "back"
    client = ["smbclient", "-p", 4450, "-N", "-s", conf, f"//{world.address}/page", "-c"]
    for _ in range(3):
        world.peer(*client, f"put {path} up.bin; get up.bin {back}").finish(30)
        assert (folder / "share/up.bin").read_bytes() == path.read_bytes()
        assert back.read_bytes() == path.read_bytes()
    return Outcome(f"{BOTH}, three sessions")

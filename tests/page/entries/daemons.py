"""Smaller servers, balancers and proxies; the clients at the end run on the stack."""

import os
import time

from harness.process import until
from page import Outcome, entry
from page import tools

LINES, RATE = 2000, "requests/s"
STREAM = "<stream:stream to='localhost' xmlns='jabber:client' version='1.0'"
STREAM += " xmlns:stream='http://etherx.jabber.org/streams'>"


def served(world, url):
    """The file comes whole, five times."""
    path = tools.blob(world, "www/big.bin")
    for _ in range(5):
        tools.fetch(world, f"{url}/big.bin", path)
    (path.parent / "small.txt").write_text("x" * 64)
    rate = tools.ab(world, f"{url}/small.txt", 4)
    return Outcome("a file of 3 MB down, five times", rate, RATE)


def handed_on(world, url, *options):
    """By a program before the digest server."""
    path = tools.blob(world)
    for _ in range(5):
        tools.fetch(world, f"{url}/big.bin", path, *options)
        tools.upload(world, f"{url}/up", path, *options)
    return Outcome("3 MB down, 3 MB up, five times")


def rated(world, outcome, url, *options):
    """The outcome with a rate of a thousand short connections."""
    outcome.rate = tools.ab(world, f"{url}/", 4, "-n", 1000, *options)
    outcome.unit = RATE
    return outcome


def digests(world):
    return tools.digest_server(world, 9000).removeprefix("http://")


def folder(world):
    """What a server shows, readable by others."""
    path = tools.blob(world, "www/big.bin").parent
    for place in (world.folder, path):
        place.chmod(0o755)
    return path


def origin(world):
    """A server at the peer with the same file."""
    words = ["python3", "-m", "http.server", 9000, "--bind", world.peer_address]
    world.peer(*words, cwd=folder(world))
    world.wait_port(9000, address=world.peer_address)
    return f"{world.peer_address}:9000"


@entry("mini-httpd", packages="mini-httpd")
def mini_httpd(world):
    path = folder(world)
    server = world.stack(tools.sbin("mini_httpd"), "-D", "-p", 8080, "-d", path, "-u", "root")
    world.wait_port(8080, process=server)
    return served(world, f"http://{world.address}:8080")


@entry("busybox httpd", packages="busybox")
def busybox_httpd(world):
    server = world.stack("busybox", "httpd", "-f", "-p", 8080, "-h", folder(world))
    world.wait_port(8080, process=server)
    return served(world, f"http://{world.address}:8080")


@entry("pen, a balancer", packages="pen")
def pen(world):
    server = world.stack("pen", "-f", "-r", f"{world.address}:8080", digests(world))
    world.wait_port(8080, process=server)
    url = f"http://{world.address}:8080"
    return rated(world, handed_on(world, url), url)


@entry("hitch (TLS), two workers", packages="hitch")
def hitch(world):
    host, port = digests(world).split(":")
    listen, behind = f"[{world.address}]:8443", f"[{host}]:{port}"
    pem = tools.certificate(world)[0]
    words = ["-u", "nobody", "-n", 2, "-f", listen, "-b", behind, pem]
    server = world.stack(tools.sbin("hitch"), *words)
    world.wait_port(8443, process=server)
    url = f"https://{world.address}:8443"
    return rated(world, handed_on(world, url), url)


@entry("privoxy", packages="privoxy")
def privoxy(world):
    conf = world.folder / "privoxy"
    conf.write_text(f"listen-address {world.address}:8118\nlogdir .\nconfdir /etc/privoxy\n")
    url = f"http://{digests(world)}"
    server = world.stack(tools.sbin("privoxy"), "--no-daemon", conf)
    world.wait_port(8118, process=server)
    outcome = handed_on(world, url, "-x", f"http://{world.address}:8118")
    return rated(world, outcome, url, "-X", f"{world.address}:8118")


@entry("sslh", packages="sslh")
def sslh(world):
    words = ["-f", "-p", f"{world.address}:8443", "--http", digests(world), "-u", "root"]
    server = world.stack(tools.sbin("sslh"), *words)
    world.wait_port(8443, process=server)
    return handed_on(world, f"http://{world.address}:8443")


@entry("prosody (XMPP)", packages="prosody")
def prosody(world):
    world.folder.chmod(0o777)
    conf = world.folder / "prosody.lua"
    conf.write_text(
        f'interfaces = {{ "{world.address}" }}\nmodules_enabled = {{ "saslauth"; "disco" }}\n'
        f'data_path = "{world.folder}"\npidfile = "{world.folder}/pid"\nrun_as_root = true\n'
        "c2s_require_encryption = false\nallow_unencrypted_plain_auth = true\n"
        'log = { info = "*console" }\nVirtualHost "localhost"\n'
    )
    server = world.stack("prosody", "-F", "--config", conf)
    world.wait_port(5222, process=server)
    with world.connect(5222) as sock:
        sock.sendall(f"<?xml version='1.0'?>{STREAM}".encode())
        said = b""
        while b"</stream:features>" not in said:
            part = sock.recv(65536)
            assert part, said
            said += part
    return Outcome("a stream is opened")


@entry("chrony (NTP)", packages="chrony")
def chrony(world):
    conf = world.folder / "chrony.conf"
    conf.write_text(
        "local stratum 8\nallow all\nport 1123\ncmdport 0\n"
        f"bindaddress {world.address}\npidfile {world.folder}/chrony.pid\n"
    )
    world.stack(tools.sbin("chronyd"), "-d", "-x", "-U", "-u", "root", "-f", conf)
    for _ in range(10):
        asked = b"\x23" + bytes(39) + os.urandom(8)
        answer = tools.ask_udp(world, world.address, 1123, asked, 1, 10)
        # The originate timestamp is the client's own.
        assert answer[0] & 7 == 4 and answer[24:32] == asked[40:], answer
    return Outcome("ten answers over UDP")


@entry("rsyslog over TCP", packages="rsyslog")
def rsyslog(world):
    conf, log = world.folder / "rsyslog.conf", world.folder / "log"
    conf.write_text(
        f'module(load="imtcp")\ninput(type="imtcp" address="{world.address}" port="5140")\n'
        f"*.* {log}\n"
    )
    words = ["-n", "-f", conf, "-i", world.folder / "rsyslog.pid"]
    server = world.stack(tools.sbin("rsyslogd"), *words)
    world.wait_port(5140, process=server)
    with world.connect(5140) as sock:
        for number in range(LINES):
            sock.sendall(b"<13>Jan 1 00:00:00 host page: line %d end\n" % number)

    def has_all():
        text = log.read_text() if log.exists() else ""
        return all(f"line {number} end\n" in text for number in range(LINES))

    until(has_all, 20, "every line is in the log")
    return Outcome("2,000 lines in")


@entry("nuttcp, server", packages="nuttcp")
def nuttcp(world):
    server = world.stack("nuttcp", "-S", "--nofork")
    world.wait_port(5000, process=server)
    for how in ([], ["-r"]):
        world.peer("nuttcp", "-T", 1, *how, world.address).finish(30)
    return Outcome("bytes counted, both ways")


@entry("iperf (2), server, four streams", packages="iperf")
def iperf2(world):
    server = world.stack("iperf", "-s", "-p", 5101)
    world.wait_port(5101, process=server)
    for how in (["-P", 4], ["-r"]):
        world.peer("iperf", "-c", world.address, "-p", 5101, "-t", 1, *how).finish(30)
    return Outcome("bytes counted, both ways")


@entry("iperf (2), server over UDP", packages="iperf")
def iperf2_udp(world):
    world.stack("iperf", "-s", "-u", "-p", 5101)
    end = time.monotonic() + 30
    said = ""
    while "Server Report" not in said:
        assert time.monotonic() < end, said
        words = ["iperf", "-c", world.address, "-u", "-b", "20m", "-p", 5101, "-t", 1]
        client = world.peer(*words)
        client.wait(20)
        said = client.output()
    return Outcome("the server's report")


@entry("aria2c, four connections", packages="aria2")
def aria2c(world):
    url = f"http://{origin(world)}/big.bin"
    words = ["-q", "-x4", "-s4", "-k1M", "-d", world.folder, "-o", "got", url]
    world.stack("aria2c", *words).finish(30)
    return compared(world)


@entry("axel, three connections", packages="axel")
def axel(world):
    url = f"http://{origin(world)}/big.bin"
    world.stack("axel", "-q", "-n", 3, "-o", world.folder / "got", url).finish(30)
    return compared(world)


def compared(world):
    shown = world.folder / "www" / "big.bin"
    assert (world.folder / "got").read_bytes() == shown.read_bytes()
    return Outcome("3 MB down")


@entry("httping", packages="httping")
def httping(world):
    text = world.stack("httping", "-c", 5, "-i", "0.2", f"http://{origin(world)}/big.bin").finish(
        30
    )
    assert "0.00% failed" in text or "0% failed" in text, text
    return Outcome("five answers")

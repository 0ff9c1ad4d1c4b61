"""Programs whose protocol is of datagrams."""

import fcntl
import os
import pty
import re
import socket
import struct
import termios
import time

from harness.process import until
from page import Outcome, entry
from page import tools

SECRET = "page-secret"


@entry("FreeRADIUS and radclient", packages="freeradius freeradius-utils")
def freeradius(world):
    folder = world.folder / "radius"
    folder.mkdir()
    conf = folder / "radiusd.conf"
    conf.write_text(
        "prefix = /usr\nlibdir = /usr/lib/freeradius\ndictionary = /etc/freeradius/3.0\n"
        f"logdir = {folder}\nrun_dir = {folder}\npidfile = {folder}/pid\n"
        "log {\n  destination = stdout\n}\n"
        "security {\n  max_attributes = 200\n  reject_delay = 0\n}\n"
        "thread pool {\n  start_servers = 4\n  max_servers = 8\n  min_spare_servers = 2\n"
        "  max_spare_servers = 8\n}\n"
        f"client peer {{\n  ipaddr = {world.peer_address}\n  secret = {SECRET}\n}}\n"
        f"modules {{\n  files {{\n    usersfile = {folder}/users\n  }}\n  pap {{\n  }}\n}}\n"
        f"server page {{\n  listen {{\n    type = auth\n    ipaddr = {world.address}\n"
        "    port = 1812\n  }\n  authorize {\n    files\n    pap\n  }\n"
        "  authenticate {\n    Auth-Type PAP {\n      pap\n    }\n  }\n}\n"
    )
    (folder / "users").write_text('anna Cleartext-Password := "right"\n  Reply-Message = "hello"\n')
    server = world.stack(tools.sbin("freeradius"), "-f", "-d", folder, "-n", "radiusd")
    until(
        lambda: "Ready to process" in server.output() or not server.is_running(), 20, "it is ready"
    )
    for password, wanted in (("right", "Access-Accept"), ("wrong", "Access-Reject")):
        asked = folder / "asked"
        asked.write_text(f'User-Name = "anna"\nUser-Password = "{password}"\n')
        words = ["-f", asked, "-c", 100, "-p", 20, "-s", f"{world.address}:1812", "auth", SECRET]
        client = world.peer("radclient", *words)
        client.wait(30)
        text = client.output()
        assert text.count(f"Received {wanted}") >= 100, text[-500:] + client.errors()[-300:]
    return Outcome("200 answers, accepted and rejected")


KAMAILIO = """children=4
listen=udp:{address}:5060
listen=tcp:{address}:5060
tcp_children=2
log_stderror=yes
mpath="/usr/lib/x86_64-linux-gnu/kamailio/modules/"
loadmodule "tm.so"
loadmodule "sl.so"
loadmodule "rr.so"
loadmodule "pv.so"
request_route {{
  if (method == "OPTIONS") {{
    sl_send_reply("200", "OK");
    exit;
  }}
  record_route();
  $du = "sip:{peer}:5070";
  t_relay();
}}
"""


@entry("Kamailio and SIPp", packages="kamailio sip-tester", timeout=120)
def kamailio(world):
    conf = world.folder / "kamailio.cfg"
    conf.write_text(KAMAILIO.format(address=world.address, peer=world.peer_address))
    words = ["-DD", "-E", "-f", conf, "-Y", world.folder, "-w", world.folder]
    server = world.stack(tools.sbin("kamailio"), *words)
    world.wait_port(5060, 30, process=server)
    called = world.peer("sipp", "-sn", "uas", "-i", world.peer_address, "-p", 5070, "-nostdin")
    words = ["-sn", "uac", "-i", world.peer_address, "-p", 5080, "-nostdin"]
    words += ["-m", 200, "-r", 100, "-d", 50, "-timeout", 30, f"{world.address}:5060"]
    caller = world.peer("sipp", *words, cwd=world.folder)
    caller.wait(50)
    text = caller.output()
    assert re.search(r"Successful call\s*\|\s*\d+\s*\|\s*200", text), text[-1500:]
    called.kill()
    return Outcome("200 calls through the proxy")


def has_bound(world, server):
    """Whether an unknown request is answered: a client repeats its own only after five seconds."""
    assert server.is_running(), server.tail()
    with world.at_peer(), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.settimeout(0.5)
        sock.sendto(b"\0\1nonesuch\0octet\0", (world.address, 6969))
        try:
            return sock.recv(600)[:2] == b"\0\5"
        except (socket.timeout, ConnectionRefusedError):
            return False


@entry("tftpd-hpa and its client", packages="tftpd-hpa tftp-hpa")
def tftpd(world):
    folder = world.folder / "tftp"
    path = tools.blob(world, "tftp/big.bin", 1_000_000)
    folder.chmod(0o777)
    words = ["-L", "-c", "-p", "-s", "-u", "nobody", "-a", f"{world.address}:6969", folder]
    server = world.stack(tools.sbin("in.tftpd"), *words)
    until(lambda: has_bound(world, server), 20, "the server has bound its port")
    back = world.folder / "back"
    ask = ["tftp", world.address, 6969, "-m", "binary", "-c"]
    world.peer(*ask, "get", "big.bin", back).finish(20)
    assert back.read_bytes() == path.read_bytes()
    up = tools.blob(world, "up.bin", 1_000_000)
    world.peer(*ask, "put", up, "up.bin").finish(20)
    assert (folder / "up.bin").read_bytes() == up.read_bytes()
    return Outcome("1 MB down, 1 MB up")


@entry("memcached over UDP", packages="memcached")
def memcached_udp(world):
    server = world.stack("memcached", "-u", "root", "-t", 4, "-p", 11211, "-U", 11211)
    world.wait_port(11211, process=server)
    for number in range(200):
        value = os.urandom(600).hex().encode()
        head = number.to_bytes(2, "big") + b"\0\0\0\1\0\0"
        asked = head + b"set k%d 0 0 %d\r\n" % (number, len(value)) + value + b"\r\n"
        assert tools.ask_udp(world, world.address, 11211, asked) == head + b"STORED\r\n"
        answer = tools.ask_udp(world, world.address, 11211, head + b"get k%d\r\n" % number)
        assert answer[8:] == b"VALUE k%d 0 %d\r\n" % (number, len(value)) + value + b"\r\nEND\r\n"
    return Outcome("200 values in and out")


@entry("UDP echo, 64 bytes", packages="gcc")
def udp_echo(world):
    program = world.folder / "udp_echo"
    source = tools.PEER_SERVER.with_name("udp_echo.c")
    world.beside("cc", "-O2", "-o", program, source).finish(30)
    server = world.stack(program, "serve", world.address, 7007)
    until(lambda: "bound" in server.output() or not server.is_running(), 20, "it is bound")
    for length in (0, 1, 64, 1472):
        asked = os.urandom(length)
        assert tools.ask_udp(world, world.address, 7007, asked) == asked, f"{length} bytes"
    text = tools.measure(world, program, "ask", world.address, 7007, tools.SECONDS, seconds=30)
    return Outcome("four lengths back", float(text), "answers/s")


@entry("mosh", packages="mosh")
def mosh(world):
    words = ["mosh-server", "new", "-i", world.address, "-p", 60001, "-l", "LANG=C.UTF-8", "--"]
    env = {"LANG": "C.UTF-8", "LC_ALL": "C.UTF-8"}
    server = world.stack(*words, "/bin/sh", env=env)
    until(lambda: "MOSH CONNECT" in server.output(), 15, "the server gives its key")
    key = re.search(r"MOSH CONNECT (\d+) (\S+)", server.output())[2]
    main, side = pty.openpty()
    fcntl.ioctl(side, termios.TIOCSWINSZ, struct.pack("4H", 24, 80, 0, 0))
    env |= {"MOSH_KEY": key, "TERM": "xterm"}
    client = world.peer(
        "script", "-qfc", f"mosh-client {world.address} 60001", "/dev/null", env=env, stdin=side
    )
    time.sleep(1)
    os.write(main, b"echo $((6 * 7))-$((1 + 1))\n")
    until(lambda: "42-2" in client.output(), 15, "the shell answers")
    os.write(main, b"exit\n")
    client.wait(10)
    os.close(main)
    os.close(side)
    return Outcome("a shell answers")

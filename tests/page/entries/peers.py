"""Programs that speak to their like, and servers of their protocols."""

import base64
import json
import os
import ssl
import struct
import sys
import time

from harness.process import until
from page import Outcome, entry
from page import tools

# Tells each peer of the other.
TRACKER = """import http.server, socket, struct, sys
peers = [word.rsplit(":", 1) for word in sys.argv[2:]]
packed = b"".join(socket.inet_aton(host) + struct.pack(">H", int(port)) for host, port in peers)
body = b"d8:intervali5e12:min intervali5e5:peers%d:%se" % (len(packed), packed)
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
http.server.ThreadingHTTPServer(("0.0.0.0", int(sys.argv[1])), Handler).serve_forever()
"""
PORT, SIZE = 51413, 6_000_000


def torrent(world, name):
    """A file of random bytes and its torrent."""
    path = tools.blob(world, f"made/{name}.bin", SIZE)
    made = world.folder / f"{name}.torrent"
    words = ["-o", made, "-t", f"http://{world.peer_address}:6969/announce", path]
    world.beside("transmission-create", *words).finish(20)
    return path, made


def transmission(world, start, address, name, is_utp):
    """A daemon with a folder of its own; returns that."""
    folder = world.folder / name
    folder.mkdir()
    settings = {
        "download-dir": str(folder),
        "peer-port": PORT,
        "bind-address-ipv4": address,
        "rpc-bind-address": address,
        "rpc-whitelist-enabled": False,
        "rpc-host-whitelist-enabled": False,
        "utp-enabled": is_utp,
        "dht-enabled": False,
        "lpd-enabled": False,
        "pex-enabled": False,
        "port-forwarding-enabled": False,
    }
    (folder / "settings.json").write_text(json.dumps(settings))
    server = start("transmission-daemon", "-f", "-g", folder)
    world.wait_port(9091, 20, process=server, address=address)
    return folder, server


def exchanged(world, is_utp):
    tracker = world.folder / "tracker.py"
    tracker.write_text(TRACKER)
    ends = [f"{address}:{PORT}" for address in (world.address, world.peer_address)]
    world.peer(sys.executable, tracker, 6969, *ends)
    world.wait_port(6969, address=world.peer_address)
    places = {}
    for name, start, address in (
        ("here", world.stack, world.address),
        ("there", world.peer, world.peer_address),
    ):
        places[name] = (*transmission(world, start, address, name, is_utp), address)
    made = {name: torrent(world, name) for name in places}
    for name, (path, _) in made.items():
        (places[name][0] / path.name).write_bytes(path.read_bytes())
    for name, (_, _, address) in places.items():
        for other in (name, *(set(places) - {name})):
            words = ["transmission-remote", f"{address}:9091", "-a", made[other][1]]
            world.peer(*words).finish(20)

    def has_come(name, other):
        path = made[other][0]
        got = places[name][0] / path.name
        return got.exists() and got.read_bytes() == path.read_bytes()

    until(lambda: has_come("here", "there") and has_come("there", "here"), 60, "both files come")
    places["here"][1].stop(20)
    return Outcome("6 MB down, 6 MB up")


@entry("Transmission over TCP", packages="transmission-daemon transmission-cli", timeout=120)
def transmission_tcp(world):
    return exchanged(world, False)


@entry("Transmission over uTP", packages="transmission-daemon transmission-cli", timeout=120)
def transmission_utp(world):
    return exchanged(world, True)


@entry("SIPp, server, over UDP and TCP", packages="sip-tester", timeout=120)
def sipp(world):
    for number, transport in enumerate(("u1", "t1", "tn")):
        port = 5060 + number
        words = ["-i", world.address, "-p", port, "-t", transport, "-nostdin"]
        words += ["-max_socket", 1000]
        server = world.stack("sipp", "-sn", "uas", *words, cwd=world.folder)
        if transport[0] == "t":
            world.wait_port(port, 20, process=server)
        else:
            time.sleep(2)
        words = ["-sn", "uac", "-i", world.peer_address, "-p", 5080, "-nostdin", "-t", transport]
        words += ["-max_socket", 1000, "-m", 200, "-r", 100, "-d", 50, "-timeout", 30]
        words += [f"{world.address}:{port}"]
        caller = world.peer("sipp", *words, cwd=world.folder)
        caller.wait(50)
        text = caller.output()
        assert caller.child.returncode == 0, text[-1500:]
    return Outcome("200 calls by each of three transports")


MURMUR = """database={folder}/murmur.sqlite
ice=
logfile=
pidfile=
host={address}
port=64738
welcometext=
bonjour=False
uname=
"""


@entry("Mumble server", packages="mumble-server")
def mumble(world):
    world.folder.chmod(0o777)
    conf = world.folder / "murmur.ini"
    conf.write_text(MURMUR.format(folder=world.folder, address=world.address))
    server = world.stack(tools.sbin("murmurd"), "-fg", "-ini", conf)
    world.wait_port(64738, 30, process=server)
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    for _ in range(3):
        with context.wrap_socket(world.connect(64738)) as sock:
            # Its version: the first message of the protocol.
            kind, length = struct.unpack(">HI", tools.receive(sock, 6))
            assert kind == 0 and len(tools.receive(sock, length)) == length
    for _ in range(5):
        asked = bytes(4) + os.urandom(8)
        answer = tools.ask_udp(world, world.address, 64738, asked)
        assert len(answer) == 24 and answer[4:12] == asked[4:], answer
    server.stop(20)
    return Outcome("three sessions with TLS, five answers over UDP")


BOX = """box.cfg{{listen = '{address}:3301', work_dir = '{folder}',
    memtx_memory = 64 * 1024 * 1024}}
box.schema.user.grant('guest', 'read,write,execute', 'universe', nil, {{if_not_exists = true}})
box.schema.space.create('page', {{if_not_exists = true}}):create_index('key',
    {{parts = {{1, 'string'}}, if_not_exists = true}})
"""
BOX_CLIENT = """local box = require('net.box').connect(arg[1])
local fiber, digest, clock = require('fiber'), require('digest'), require('clock')
local space = box.space.page
for i = 1, 15 do
    local value = digest.urandom(200000)
    space:replace({'k' .. i, value})
    assert(space:get('k' .. i)[2] == value)
end
space:replace({'k', string.rep('x', 64)})
local count, start = 0, clock.monotonic()
local left = fiber.channel(8)
for i = 1, 8 do fiber.create(function()
    while clock.monotonic() < start + 2 do space:get('k'); count = count + 1 end
    left:put(true)
end) end
for i = 1, 8 do left:get() end
print(count / (clock.monotonic() - start))
os.exit(0)
"""


@entry("Tarantool", packages="tarantool")
def tarantool(world):
    script = world.folder / "box.lua"
    text = BOX.format(address=world.address, folder=world.folder)
    script.write_text(text)
    server = world.stack("tarantool", script)
    world.wait_port(3301, 30, process=server)
    until(lambda: "entering the event loop" in server.errors(), 20, "the space is there")
    client = world.folder / "client.lua"
    client.write_text(BOX_CLIENT)
    rate = tools.measure(world, "tarantool", client, f"{world.address}:3301", seconds=40)
    server.stop(20)
    return Outcome("3 MB in, 3 MB out", float(rate), "gets/s")


EJABBERD = """hosts: [localhost]
loglevel: info
certfiles: [{folder}/tls.pem]
listen:
  - port: 5222
    ip: "{address}"
    module: ejabberd_c2s
    starttls: false
  - port: 5280
    ip: "{address}"
    module: ejabberd_http
    request_handlers:
      /api: mod_http_api
api_permissions:
  all: {{who: all, what: ["register", "registered_users", "unregister", "status"]}}
acl: {{}}
modules: {{mod_http_api: {{}}}}
"""
STREAM = (
    "<?xml version='1.0'?><stream:stream to='localhost' xmlns='jabber:client' version='1.0'"
    " xmlns:stream='http://etherx.jabber.org/streams'>"
)


def talk(sock, sent, until_word):
    """Sends XML and returns what comes up to a word."""
    sock.sendall(sent.encode())
    said = b""
    while until_word.encode() not in said:
        part = sock.recv(65536)
        assert part, said[-300:]
        said += part
    return said.decode()


def logged_in(world, user):
    sock = world.connect(5222)
    talk(sock, STREAM, "</stream:features>")
    secret = base64.b64encode(f"\0{user}\0secret".encode()).decode()
    auth = "<auth xmlns='urn:ietf:params:xml:ns:xmpp-sasl' mechanism='PLAIN'>"
    talk(sock, f"{auth}{secret}</auth>", "<success")
    talk(sock, STREAM, "</stream:features>")
    bind = "<bind xmlns='urn:ietf:params:xml:ns:xmpp-bind'><resource>page</resource></bind>"
    talk(sock, f"<iq type='set' id='1'>{bind}</iq>", "</iq>")
    talk(sock, "<presence/>", "<presence")
    return sock


@entry("ejabberd (XMPP)", packages="ejabberd", timeout=120)
def ejabberd(world):
    world.folder.chmod(0o777)
    tools.certificate(world)
    conf = world.folder / "ejabberd.yml"
    conf.write_text(EJABBERD.format(folder=world.folder, address=world.address))
    env = {
        "HOME": world.folder,
        "EJABBERD_CONFIG_PATH": conf,
        "EJABBERD_LOG_PATH": world.folder / "ejabberd.log",
        "ERL_LIBS": "/usr/lib/x86_64-linux-gnu",
    }
    words = ["-noinput", "-mnesia", "dir", f'"{world.folder}/mnesia"', "-s", "ejabberd"]
    server = world.stack("erl", *words, env=env, cwd=world.folder)
    world.wait_port(5222, 40, process=server)
    world.wait_port(5280, 40, process=server)
    for user in ("one", "two"):
        asked = json.dumps({"user": user, "host": "localhost", "password": "secret"})
        words = ["curl", "-sS", "--fail", "--max-time", 20, "-d", asked]
        world.peer(*words, f"http://{world.address}:5280/api/register").finish(25)
    one, two = logged_in(world, "one"), logged_in(world, "two")
    for number in range(20):
        data = os.urandom(20_000).hex()
        for sock, other, name in ((one, two, "two"), (two, one, "one")):
            body = f"<message to='{name}@localhost/page' type='chat'><body>{data}</body></message>"
            sock.sendall(body.encode())
            assert data in talk(other, " ", "</message>"), number

    def call():
        one.sendall(b"<message to='two@localhost/page'><body>x</body></message>")
        talk(two, "", "</message>")

    # Their rate would be that of a runtime whose threads wait for processors.
    tools.calls(world, call, 1)
    server.stop(20)
    return Outcome("0.8 MB each way between two clients")

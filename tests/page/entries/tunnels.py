"""Tunnels, ncat's modes, and a broker."""

import os
import socket
import ssl

from harness.process import until
from page import Outcome, entry
from page import tools

BOTH = "3 MB down, 3 MB up"


def openvpn(world, ends):
    """A tunnel with one key for both ends; `ends`: its protocol at the server and at the client."""
    key = world.folder / "key"
    world.beside("openvpn", "--genkey", "secret", key).finish()
    common = [
        "openvpn",
        "--dev",
        "tun",
        "--disable-dco",
        "--secret",
        key,
        "--cipher",
        "AES-256-CBC",
        "--auth",
        "SHA256",
        "--keepalive",
        5,
        30,
    ]
    server = world.stack(
        *common,
        "--proto",
        ends[0],
        "--port",
        1194,
        "--local",
        world.address,
        "--ifconfig",
        "10.99.0.1",
        "10.99.0.2",
    )
    client = world.peer(
        *common,
        "--proto",
        ends[1],
        "--remote",
        world.address,
        1194,
        "--nobind",
        "--ifconfig",
        "10.99.0.2",
        "10.99.0.1",
    )
    done = "Initialization Sequence Completed"
    until(
        lambda: done in server.output() and done in client.output() or not server.is_running(),
        20,
        "the tunnel stands",
    )
    tools.digest_server(world, 9000, start=world.beside)
    path = tools.blob(world)
    tools.fetch(world, "http://10.99.0.1:9000/big.bin", path)
    tools.upload(world, "http://10.99.0.1:9000", path)
    url = "http://10.99.0.1:9000/big.bin"
    rate = 3 * tools.calls(world, lambda: tools.fetch(world, url, path))
    return Outcome(BOTH, rate, "MB/s down")


@entry("OpenVPN over UDP, static key", packages="openvpn curl")
def openvpn_udp(world):
    return openvpn(world, ("udp", "udp"))


@entry("OpenVPN over TCP, static key", packages="openvpn curl")
def openvpn_tcp(world):
    return openvpn(world, ("tcp-server", "tcp-client"))


@entry("ncat --ssl --exec", packages="ncat openssl")
def ncat_ssl(world):
    pem, _, _ = tools.certificate(world)
    server = world.stack(
        "ncat",
        "-l",
        "-k",
        "-p",
        7000,
        "--ssl",
        "--ssl-cert",
        pem,
        "--ssl-key",
        pem,
        "--exec",
        "/bin/cat",
    )
    world.wait_port(7000, process=server)
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    data = os.urandom(60_000)
    with context.wrap_socket(world.connect(7000)) as sock:
        for at in range(0, len(data), 4000):
            part = data[at : at + 4000]
            sock.sendall(part)
            assert tools.receive(sock, len(part)) == part
    return Outcome("0.06 MB echoed")


@entry("ncat --udp --exec", packages="ncat")
def ncat_udp(world):
    world.stack("ncat", "-l", "-u", "-p", 7000, "--exec", "/bin/cat")
    data = os.urandom(1000)
    with world.at_peer(), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.settimeout(0.5)
        sock.connect((world.address, 7000))
        assert until(lambda: answer(sock, data) == data, 10, "the first echo")
        for _ in range(20):
            assert answer(sock, data) == data
    return Outcome("20 datagrams echoed")


def answer(sock, data):
    try:
        sock.send(data)
        return sock.recv(65536)
    except OSError:
        return None


@entry("ncat --proxy-type http", packages="ncat curl")
def ncat_proxy(world):
    tools.digest_server(world, 9000)
    server = world.stack("ncat", "-l", "-k", "-p", 3128, "--proxy-type", "http")
    world.wait_port(3128, process=server)
    path = tools.blob(world)
    url, through = f"http://{world.peer_address}:9000", ("-p", "-x", f"http://{world.address}:3128")
    tools.fetch(world, f"{url}/big.bin", path, *through)
    tools.upload(world, url, path, *through)
    return Outcome(BOTH)


RABBIT = """listeners.tcp = none
stomp.listeners.tcp.1 = {address}:61613
loopback_users = none
"""


@entry("RabbitMQ (STOMP)", packages="rabbitmq-server", timeout=150)
def rabbitmq(world):
    folder = world.folder / "rabbit"
    folder.mkdir()
    (folder / "rabbit.conf").write_text(RABBIT.format(address=world.address))
    (folder / "plugins").write_text("[rabbitmq_stomp].\n")
    env = {
        "HOME": folder,
        "RABBITMQ_NODENAME": "page@localhost",
        "RABBITMQ_MNESIA_BASE": folder,
        "RABBITMQ_LOGS": "-",
        "RABBITMQ_LOG_BASE": folder,
        "RABBITMQ_CONFIG_FILE": folder / "rabbit.conf",
        "RABBITMQ_PID_FILE": folder / "pid",
        "RABBITMQ_ENABLED_PLUGINS_FILE": folder / "plugins",
        "ERL_EPMD_ADDRESS": "127.0.0.1",
        "RABBITMQ_DIST_PORT": 25672,
        "RABBITMQ_FEATURE_FLAGS_FILE": folder / "flags",
    }
    # Erlang's name daemon, which the broker would otherwise start and not end.
    world.beside("epmd", "-address", "127.0.0.1", env=env)
    server = world.stack("/usr/lib/rabbitmq/bin/rabbitmq-server", env=env)
    world.wait_port(61613, 90, process=server)
    body = os.urandom(500_000)
    with world.connect(61613, 20) as sock:
        stomp(
            sock,
            "CONNECT",
            {"accept-version": "1.2", "host": "/", "login": "guest", "passcode": "guest"},
        )
        assert read_frame(sock)[0] == "CONNECTED"
        stomp(sock, "SUBSCRIBE", {"id": "1", "destination": "/queue/page", "receipt": "1"})
        assert read_frame(sock)[0] == "RECEIPT"
        for _ in range(3):
            stomp(
                sock, "SEND", {"destination": "/queue/page", "content-length": str(len(body))}, body
            )
            kind, got = read_frame(sock)
            assert kind == "MESSAGE" and got == body, kind

        def call():
            stomp(sock, "SEND", {"destination": "/queue/page", "content-length": "64"}, b"x" * 64)
            assert read_frame(sock) == ("MESSAGE", b"x" * 64)

        rate = tools.calls(world, call)
    return Outcome("0.5 MB in and out, three times", rate, "messages/s")


def stomp(sock, kind, headers, body=b""):
    lines = [kind, *(f"{name}:{value}" for name, value in headers.items()), "", ""]
    sock.sendall("\n".join(lines).encode() + body + b"\0")


def read_frame(sock):
    """Its kind and body; between frames there may be ends of lines."""
    head = b""
    while not head.endswith(b"\n\n"):
        head = (head + tools.receive(sock, 1)).lstrip(b"\n")
    kind, *lines = head.decode().strip().split("\n")
    headers = dict(line.split(":", 1) for line in lines)
    body = tools.receive(sock, int(headers.get("content-length", 0)))
    while tools.receive(sock, 1) != b"\0":
        pass
    return kind, body

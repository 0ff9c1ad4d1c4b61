"""The modes of ncat that hand on what they get, and ncat as a client."""

import os

from harness.process import until
from page import Outcome, entry
from page import tools

SIZE = 300_000


def listening(world, *words):
    """A server that nobody has connected to: in a chat a client that has left ends ncat itself
    (getpeername)."""
    server = world.stack("ncat", "-v", "-4", "-l", "-k", "-p", 7000, *words)
    until(lambda: "Listening on" in server.errors(), 10, "ncat listens")
    return server


def met(world, count):
    """Connections that the server has taken: each has had bytes from each other."""
    socks = [world.connect(7000) for _ in range(count)]
    for number, sock in enumerate(socks):
        seen = {id(sock)}
        while len(seen) < count:
            sock.sendall(b"%d\n" % number)
            for other in socks:
                if id(other) not in seen and heard(other, b"%d\n" % number):
                    seen.add(id(other))
    return socks


def heard(sock, wanted):
    """Reads until nothing more comes for a moment."""
    data = b""
    sock.settimeout(0.2)
    try:
        while not data.endswith(wanted):
            data += sock.recv(65536)
    except TimeoutError:
        pass
    sock.settimeout(10)
    return wanted in data


def drained(socks):
    for sock in socks:
        heard(sock, b"nothing ends so")
    return socks


@entry("ncat --broker", packages="ncat")
def ncat_broker(world):
    listening(world, "--broker")
    first, *others = drained(met(world, 3))
    for sender, receivers in ((first, others), (others[0], (first, others[1]))):
        data = os.urandom(SIZE)
        for at in range(0, SIZE, 4000):
            part = data[at : at + 4000]
            sender.sendall(part)
            for receiver in receivers:
                assert tools.receive(receiver, len(part)) == part
    return Outcome("0.3 MB from each of two to two others")


@entry("ncat --chat", packages="ncat")
def ncat_chat(world):
    listening(world, "--chat")
    first, second = drained(met(world, 2))
    for sender, receiver in ((first, second), (second, first)):
        for number in range(100):
            line = b"line %d %s\n" % (number, os.urandom(20).hex().encode())
            sender.sendall(line)
            name = tools.receive(receiver, len(b"<user4> "))
            assert name.startswith(b"<user") and name.endswith(b"> "), name
            assert tools.receive(receiver, len(line)) == line
    return Outcome("100 lines each way")


@entry("ncat --sh-exec", packages="ncat")
def ncat_shell(world):
    path = tools.blob(world)
    listening(world, "--sh-exec", f"read -r count; head -c $count | sha256sum; cat {path}")
    for _ in range(3):
        with world.connect(7000) as sock:
            sock.sendall(b"%d\n" % SIZE)
            data = os.urandom(SIZE)
            sock.sendall(data)
            said = tools.receive(sock, len(tools.digest(data)) + len("  -\n"))
            assert said.split()[0].decode() == tools.digest(data), "sent bytes differ"
            assert tools.receive(sock, path.stat().st_size) == path.read_bytes()
            assert sock.recv(1) == b""
    return Outcome("0.3 MB up, 3 MB down, three times")


@entry("ncat as a client, through a proxy too", packages="ncat")
def ncat_client(world):
    tools.digest_server(world, 9000)
    proxy = world.peer("ncat", "-l", "-k", "-p", 3128, "--proxy-type", "http")
    world.wait_port(3128, address=world.peer_address, process=proxy)
    path, into = tools.blob(world), world.folder / "into"
    asked = world.folder / "asked"
    for options in ("", f"--no-shutdown --proxy {world.peer_address}:3128"):
        asked.write_bytes(b"GET /big.bin HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        command = f"exec ncat {options} {world.peer_address} 9000 <{asked} >{into}"
        world.stack("sh", "-c", command).finish(20)
        assert into.read_bytes().partition(b"\r\n\r\n")[2] == path.read_bytes(), "read bytes differ"
        head = b"POST /up HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: %d\r\n\r\n"
        asked.write_bytes(head % path.stat().st_size + path.read_bytes())
        world.stack("sh", "-c", command).finish(20)
        answer = into.read_bytes().rpartition(b"\r\n")[2].decode()
        assert answer == tools.digest(path.read_bytes()), "sent bytes differ"
    return Outcome("3 MB down, 3 MB up, both ways")

"""Connections and sockets that other programs inherit."""

import contextlib
import signal
import socket
import subprocess

from harness import test
from harness.process import until
from harness.world import PROGRAMS
from test_confined import connected

ECHO = """
import socketserver, sys
class Echo(socketserver.BaseRequestHandler):
    def handle(self):
        while data := self.request.recv(65536):
            self.request.sendall(data)
        print("ended", flush=True)
class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = daemon_threads = True
Server((sys.argv[1], int(sys.argv[2])), Echo).serve_forever()
"""
PORT = 7220
QUESTIONS = [f"question {number}" for number in range(1, 6)]
ANSWERS = [*QUESTIONS, "subshell: line", "piece", "from a subshell", "last", "closed"]


def echo(world):
    server = world.peer("/usr/bin/python3", "-c", ECHO, world.peer_address, PORT)
    world.wait_port(PORT, address=world.peer_address)
    return server


@test
def a_script_keeps_its_connection_beside_the_programs_that_it_runs(world):
    echo(world)
    script = world.stack("/bin/bash", world.program("inherits.sh")[-1], world.peer_address, PORT)
    assert script.finish().split("\n")[:-1] == ANSWERS


CLOSES = """
trap 'kill $(jobs -p)' TERM
exec 4<>/dev/tcp/$1/$2
echo line >&4
: 4>&-
sleep 9 4>&- &
{ exec sleep 9; } 4>&- &
(exec 4>&-; exec sleep 9) &
read -r line <&4
exec 4>&-
echo closed
wait
"""


@test
def a_connection_that_a_script_closes_for_its_commands_ends_with_its_own_close(world):
    server = echo(world)
    until(lambda: server.output() == "ended\n", 5, "the connection that found the port open ends")
    script = world.stack("/bin/bash", "-c", CLOSES, "bash", world.peer_address, PORT)
    until(lambda: "closed" in script.output(), 5, "it is closed")
    until(lambda: server.output() == "ended\nended\n", 2, "the peer sees the end")
    assert len(script.children()) == 3, "the commands go on"
    script.signal(signal.SIGTERM)
    script.wait(5)


@test
def a_static_program_that_a_script_starts_is_reported(world):
    """ldconfig is static everywhere."""
    started = world.stack("/bin/sh", "-c", "/sbin/ldconfig -V; :")
    assert "ldconfig" in started.finish()
    assert "/sbin/ldconfig is statically linked" in started.errors(), started.errors()
    refused = world.stack("/bin/sh", "-c", "/sbin/ldconfig -V; echo $?", options=("--strict",))
    assert refused.finish() == "126\n"
    assert "--strict refuses it" in refused.errors(), refused.errors()


LISTENER = """
import socket, sys
with socket.create_server((sys.argv[1], int(sys.argv[2])), backlog=64) as server:
    while True:
        sock, _ = server.accept()
        with sock:
            sock.sendall(sys.argv[1].encode())
"""


@test(modes=("inprocess",))
def two_programs_listen_on_one_port_at_two_addresses(world):
    addresses = [world.address, "10.77.0.9"]
    both = [word for address in addresses for word in ("--ip", f"{address}/24")]
    world.device_options = lambda: ["--if", "eth1", *both]
    for number, address in enumerate(addresses):
        started = world.stack("/usr/bin/python3", "-c", LISTENER, address, PORT)
        world.wait_port(PORT, process=started, address=address)
        for closed in addresses[number + 1 :]:
            with contextlib.suppress(ConnectionRefusedError):
                # The first SYN is answered: the kernel would send a second one after a second.
                world.connect(PORT, 0.9, address=closed)
                assert False, "nobody listens at the other address yet"
    for _ in range(20):
        for address in addresses:
            with world.connect(PORT, 3, address=address) as sock:
                assert sock.recv(64).decode() == address


@test(modes=("inprocess",))
def nobody_has_a_datagram_port_at_a_third_address_while_two_programs_have_it_at_others(world):
    addresses = [world.address, "10.77.0.9", "10.77.0.10"]
    all_three = [word for address in addresses for word in ("--ip", f"{address}/24")]
    world.device_options = lambda: ["--if", "eth1", *all_three]
    *served, closed = addresses
    for address in served:
        world.stack("/usr/bin/python3", "-c", UDP_ECHO, address, PORT)

    def answer(address):
        with world.at_peer():
            sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        with sock:
            sock.settimeout(1)
            sock.connect((address, PORT))
            try:
                sock.send(b"question")
                return sock.recv(64)
            except OSError as error:
                return type(error)

    for address in served:
        until(lambda address=address: answer(address) == b"question", 10, "it is served")
    assert answer(closed) is ConnectionRefusedError
    asker = world.stack("/usr/bin/python3", "-c", UDP_ASKER, closed, PORT)
    assert asker.finish() == "ECONNREFUSED\n"
    assert [answer(address) for address in served] == [b"question"] * 2


@test
def a_child_that_confines_itself_uses_its_connection(world):
    """As sshd's and vsftpd's do: no further descriptor, and only some system calls."""
    program = world.folder / "confined"
    subprocess.run(["gcc", "-Wall", "-o", program, PROGRAMS / "confined.c"], check=True)
    for port, how in ((7100, "limit"), (7101, "filter")):
        server = world.stack(program, port, how)
        world.wait_port(port, process=server)
        data = bytes(range(256)) * 40
        with world.connect(port) as sock, sock.makefile("rb") as back:
            for _ in range(3):
                sock.sendall(data)
                assert back.read(len(data)) == data, "the echo differs"
        until(
            lambda: server.output().split()[-2:] == ["status", "0"],
            5,
            f"the child ends well\n{server.output()}",
        )
        assert "signal" not in server.output(), server.output()


UDP_ASKER = """
import errno, socket, sys
sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
sock.settimeout(1)
sock.connect((sys.argv[1], int(sys.argv[2])))
try:
    sock.send(b"question")
    print(sock.recv(64))
except OSError as error:
    print(errno.errorcode.get(error.errno, error))
"""
UDP_ECHO = """
import socket, sys
sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
sock.bind((sys.argv[1], int(sys.argv[2])))
while True:
    data, sender = sock.recvfrom(65536)
    sock.sendto(data, sender)
    if data.startswith(b"group"):
        sock.sendto(b"to all", ("239.1.2.3", int(data.split()[1])))
"""
UDP_TOLD = """- errors
connect None
closed 1 ECONNREFUSED 0
waits timeout
long EMSGSIZE
broadcast EACCES
port 0 EINVAL
uncut EMSGSIZE
uncut in the parent EMSGSIZE
- polled
polled 1 1
parent b'left'
polled 1 b'one' 1
peeked b'two' 1
parent b'two'
empty EAGAIN
- announced
before [] []
taken [] []
in vain 0
refused [8] [8]
error 111 []
- closed
nothing [] 1 b'by the kernel' []
- filtered
attach None
filtered timeout
join None
join EADDRINUSE
heard [b'group', b'to al']
leave None
- connected
connect None ('10.77.0.1', 7220)
send 7 b'by name'
parent ('10.77.0.1', 7220) 3 b'too'
dissolved ENOTCONN EDESTADDRREQ
parent ENOTCONN EDESTADDRREQ
- alone
parent has ended True
child b'waits 7222'
- left
found b'0'
"""


SHELLS = """
import ctypes, socket, sys
libc = ctypes.CDLL(None)
libc.popen.restype, libc.pclose.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
with socket.create_server((sys.argv[1], int(sys.argv[2]))) as server:
    sock, _ = server.accept()
sock.set_inheritable(True)
number = sock.fileno()
reads = f"read line <&{number} && echo %s $line >&{number}"
for turn in range(2):
    assert libc.system((reads % "system").encode()) == 0
    sock.sendall(b"server " + sock.recv(100))
    shell = libc.popen((reads % "popen").encode(), b"w")
    assert libc.pclose(shell) == 0
sock.close()
"""


@test
def shells_of_system_and_popen_have_the_programs_connections(world):
    server = world.stack("/usr/bin/python3", "-c", SHELLS, world.address, PORT)
    with connected(world, PORT) as sock, sock.makefile("rwb", 0) as stream:
        for turn in range(2):
            for who in (b"system", b"server", b"popen"):
                stream.write(b"line %d\n" % turn)
                assert stream.readline() == b"%s line %d\n" % (who, turn), server.tail()
        assert stream.read() == b""
    server.finish()


@test
def a_child_shares_a_datagram_socket_that_its_parent_has_used(world):
    """As on the kernel: errors, poll, unread datagrams, options, groups, connect."""
    world.peer("/usr/bin/python3", "-c", UDP_ECHO, world.peer_address, PORT)
    words = world.program("inherited_udp.py")
    started = world.stack(*words, world.address, world.peer_address, PORT)
    told = started.finish(40)
    assert told == UDP_TOLD, f"{told}{started.errors()}"


ONE_SOCKET = """
import os, select, socket, sys
peer = (sys.argv[1], int(sys.argv[3]))
sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
sock.bind((sys.argv[2], 0))
with socket.create_connection(peer) as first:
    first.recv(1)
come, go = os.pipe()
child = os.fork()
if child == 0:
    sock.sendto(b"child", peer)
    os.write(go, b"x")
    select.select([], [], [])
os.read(come, 1)
for number in range(40):
    sock.sendto(b"%d" % number, peer)
found = set()
while len(found) < 41 and select.select([sock], [], [], 5)[0]:
    found.add(sock.recv(100))
os.kill(child, 9)
print(len(found), "of 41")
"""


@test
def what_comes_to_a_datagram_socket_is_for_the_process_that_receives(world):
    """Bound before the process has an engine, and a child has sent on it."""
    here = (world.peer_address, PORT)
    with world.at_peer():
        listener = socket.create_server(here)
        echo = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with listener, echo:
        echo.bind(here)
        echo.settimeout(10)
        listener.settimeout(10)
        words = (world.peer_address, world.address, PORT)
        started = world.stack("/usr/bin/python3", "-c", ONE_SOCKET, *words)
        listener.accept()[0].close()
        for _ in range(41):
            data, sender = echo.recvfrom(100)
            echo.sendto(data, sender)
        assert started.finish(20) == "41 of 41\n", started.tail()


TO_PARENT = """
import os, socket, sys
address = (sys.argv[1], int(sys.argv[2]))
sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
sock.bind(address)
sock.settimeout(5)
if os.fork() == 0:
    own = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    own.settimeout(5)
    for _ in range(10):
        own.sendto(b"question", address)
        assert own.recv(100) == b"answer"
    os._exit(0)
for _ in range(10):
    data, peer = sock.recvfrom(100)
    sock.sendto(b"answer", peer)
assert os.wait()[1] == 0
print("answered")
"""


@test
def a_child_sends_datagrams_to_a_socket_of_its_parent_that_it_has_too(world):
    started = world.stack("/usr/bin/python3", "-c", TO_PARENT, world.address, PORT)
    assert started.finish(20) == "answered\n", started.errors()


SENT_ON = """
import os, socket, sys
peer = (sys.argv[1], int(sys.argv[3]))
near, far = socket.socketpair()

def ask(sock, text):
    for _ in range(10):
        sock.send(text)
        assert sock.recv(100) == text, "another answer"

def in_child(body, *words):
    pid = os.fork()
    if pid == 0:
        body(*words)
        os._exit(0)
    return pid

def receiver():
    for _ in range(2):
        sock = socket.socket(fileno=socket.recv_fds(far, 1, 1)[1][0])
        # Until nobody else has it.
        far.recv(1)
        sock.settimeout(5)
        kind, name = sock.type.name, sock.getpeername()
        ask(sock, b"received")
        print(kind, name == peer, flush=True)
        sock.close()

def sends(sock):
    ask(sock, b"child")
    socket.send_fds(near, [b"x"], [sock.fileno()])

started = in_child(receiver)
for is_childs in (True, False):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.settimeout(5)
        sock.bind((sys.argv[2], 0))
        sock.connect(peer)
        ask(sock, b"maker")
        if is_childs:
            os.waitpid(in_child(sends, sock), 0)
        else:
            sends(sock)
    near.send(b"x")
assert os.waitpid(started, 0)[1] == 0
"""


@test
def a_connected_datagram_socket_is_sent_on_by_a_child_and_by_its_maker(world):
    with world.at_peer():
        echo = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with echo:
        echo.bind((world.peer_address, PORT))
        echo.settimeout(10)
        words = (world.peer_address, world.address, PORT)
        started = world.stack("/usr/bin/python3", "-c", SENT_ON, *words)
        for _ in range(60):
            data, sender = echo.recvfrom(100)
            echo.sendto(data, sender)
        assert started.finish(30) == "SOCK_DGRAM True\n" * 2, started.errors()

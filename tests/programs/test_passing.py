"""Connections that other programs use: SCM_RIGHTS, posix_spawn."""

import hashlib
import json
import os
import shutil
import signal
import socket

from harness import Skip, test
from harness.datagrams import numbered
from harness.process import until

PORT = 7210


def server(world, how):
    started = world.stack(*world.program("passing.py"), PORT, how)
    world.wait_port(PORT, process=started)
    return started


def is_served(world, started, count=10):
    for number in range(count):
        with world.connect(PORT) as sock, sock.makefile() as stream:
            for line in (f"number {number}\n", "once more\n"):
                sock.sendall(line.encode())
                host, port, own, pid, said = stream.readline().split(" ", 4)
                assert (host, int(port), int(own), said) == (*sock.getsockname(), PORT, line)
                assert int(pid) != started.pid, "another process serves it"
            sock.shutdown(socket.SHUT_WR)
            assert stream.read() == "", "the connection ends with the last process's number"


@test
def a_connection_sent_to_another_program_is_served_there(world):
    started = server(world, "rights")
    is_served(world, started)


@test
def a_listening_socket_sent_to_another_program_is_served_there(world):
    started = server(world, "listener")
    is_served(world, started)


@test
def a_bound_socket_sent_to_another_program_listens_there(world):
    started = server(world, "bound")
    is_served(world, started)


@test
def a_datagram_socket_sent_to_another_program_is_served_there(world):
    """Those that come before, during and after the move."""
    started = world.stack(*world.program("passing.py"), PORT, "datagrams")
    until(lambda: "bound" in started.output(), 10, "it is bound")
    with world.at_peer():
        sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with sock:
        sock.bind((world.peer_address, 0))
        answers = numbered(sock, (world.address, PORT), 150)
    assert sorted(answers) == list(range(150)), f"{len(answers)} of 150, {started.tail()}"
    assert started.pid not in answers.values()


@test
def a_connection_pickled_by_multiprocessing_is_served_there(world):
    started = server(world, "pickled")
    is_served(world, started)


def is_echoed(world, how):
    started = server(world, how)
    data = hashlib.shake_256(b"cat").digest(200_000)
    for _ in range(3):
        with world.connect(PORT) as sock:
            sock.sendall(data[:1000])
            got = sock.recv(1000, socket.MSG_WAITALL)
            sock.sendall(data[1000:])
            sock.shutdown(socket.SHUT_WR)
            while chunk := sock.recv(65536):
                got += chunk
        assert got == data, f"{len(got)} bytes"
    started.stop()


@test
def posix_spawn_gives_a_connection_as_input_and_output(world):
    is_echoed(world, "spawn")


@test
def posix_spawn_leaves_input_and_output_as_they_are(world):
    is_echoed(world, "inherit")


@test
def a_spawned_program_knows_its_connections_addresses(world):
    server(world, "names")
    with world.connect(PORT) as sock, sock.makefile() as stream:
        host, port = sock.getsockname()
        assert stream.read().split() == [host, str(port), str(PORT), "AF_INET"]


GIVER = """
import os, signal, socket, sys, threading, time
how, address, port = sys.argv[1], sys.argv[2], int(sys.argv[3])
server = socket.create_server((address, port))
near, far = socket.socketpair()
if how == "sent" and os.fork() == 0:
    server.close()
    near.close()
    sock = socket.socket(fileno=socket.recv_fds(far, 1, 1)[1][0])
else:
    sock, _ = server.accept()
    if how == "sent":
        socket.send_fds(near, [b"x"], [sock.fileno()])
        os._exit(0)
    if how == "late":
        parent = os.getpid()
        if os.fork() != 0:
            sys.exit()
        server.close()
        # Until the parent has gone.
        while os.getppid() == parent:
            time.sleep(0.01)
        how = "child"
    if how == "unused":
        if os.fork() != 0:
            sys.exit()
        # Its parent has given up finding somebody else for the connection.
        time.sleep(1.5)
    ready, tell = os.pipe()
    if how == "threads":
        busy = lambda: [sum(range(1000)) for _ in iter(int, 1)]
        threading.Thread(target=busy, daemon=True).start()
    if how in ("forked", "threads", "terminated") and os.fork() != 0:
        os.read(ready, 1)
        if how == "terminated":
            os.kill(os.getpid(), signal.SIGTERM)
        sys.exit()
    server.close()
    os.set_blocking(sock.fileno(), True)
    sock.sendall(b"here\\n")
    os.write(tell, b"x")
for line in sock.makefile("rb"):
    sock.sendall(line * 1000)
"""


def outlives(world, how, ended=0, then=lambda world: None):
    started = world.stack("/usr/bin/python3", "-c", GIVER, how, world.address, PORT)
    # The only connection: a look whether the port is open would be that.
    sock = connect(world)
    with sock, sock.makefile("rb") as stream:
        if how != "sent":
            assert stream.readline() == b"here\n"
            # Nobody who waits for it has to wait for its child.
            assert started.wait(10) == ended, started.tail()
        then(world)
        for number in range(20):
            line = b"line %d\n" % number
            sock.sendall(line)
            assert stream.read(len(line) * 1000) == line * 1000
        sock.shutdown(socket.SHUT_WR)
        assert stream.read() == b""
    assert started.wait(10) == ended, started.tail()


def connect(world):
    found = []

    def is_open():
        try:
            found.append(world.connect(PORT))
        except ConnectionRefusedError:
            return False
        return True

    until(is_open, 10, "the listener")
    return found[0]


@test
def a_connection_outlives_the_process_that_sent_it_away(world):
    outlives(world, "sent")


@test
def a_connection_outlives_the_process_that_made_it_while_a_child_uses_it(world):
    outlives(world, "forked")


@test
def a_child_first_uses_a_connection_after_its_parent_has_ended(world):
    outlives(world, "late")


@test(modes=("inprocess", "kernel"))
def without_a_free_slot_a_child_first_uses_a_connection_after_its_parents_end(world):
    base = world.device_options()
    world.device_options = lambda: [*base, "--slots", "2"]
    other = world.stack(*world.program("forking.py"), 7211, "echo")
    world.wait_port(7211, process=other)
    started = world.stack("/usr/bin/python3", "-c", GIVER, "unused", world.address, PORT)
    sock = connect(world)
    with sock, sock.makefile("rb") as stream:
        assert stream.readline() == b"here\n"
        sock.sendall(b"line\n")
        assert stream.read(5000) == b"line\n" * 1000
        sock.shutdown(socket.SHUT_WR)
        assert stream.read() == b""
    assert started.wait(10) == 0, started.tail()


@test
def a_connection_outlives_a_maker_that_has_threads(world):
    outlives(world, "threads")


@test
def a_connection_outlives_a_maker_that_is_terminated(world):
    outlives(world, "terminated", -signal.SIGTERM)


def kill_the_keeper(world):
    def pids():
        status = world.admin("status", "--json")
        reports = json.loads(status.output()) if status.child.returncode == 0 else []
        return [report["keeper_pid"] for report in reports]

    (keeper,) = pids()
    os.kill(keeper, signal.SIGKILL)
    until(lambda: pids() not in ([], [keeper]), 10, "a successor")


@test(modes=("inprocess", "instance"))
def a_connection_whose_maker_has_ended_outlives_the_keeper(world):
    outlives(world, "forked", then=kill_the_keeper)


STARTER = """
import os, socket, subprocess, sys
server = socket.create_server((sys.argv[1], int(sys.argv[2])))
sock, _ = server.accept()
os.set_inheritable(sock.fileno(), True)
words = [sys.executable, "-c", sys.argv[3], str(sock.fileno())]
subprocess.Popen(words, close_fds=False)
"""
BACKGROUND = """
import socket, sys
sock = socket.socket(fileno=int(sys.argv[1]))
sock.sendall(b"here\\n")
for line in sock.makefile("rb"):
    sock.sendall(line)
"""


@test
def a_program_in_the_background_keeps_the_connection_of_its_starter(world):
    started = world.stack("/usr/bin/python3", "-c", STARTER, world.address, PORT, BACKGROUND)
    sock = connect(world)
    with sock, sock.makefile("rb") as stream:
        assert stream.readline() == b"here\n"
        started.finish(10)
        for number in range(30):
            sock.sendall(b"line %d\n" % number)
            assert stream.readline() == b"line %d\n" % number
        sock.shutdown(socket.SHUT_WR)
        assert stream.read() == b""


@test
def ssh_in_the_background_keeps_its_connection(world):
    if not (shutil.which("ssh") and os.path.exists("/usr/sbin/sshd")):
        raise Skip("ssh and sshd are not installed")
    folder = world.folder
    for name in ("host", "user"):
        world.beside("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name).finish()
    (folder / "sshd_config").write_text(
        f"Port {PORT}\nHostKey {folder}/host\nAuthorizedKeysFile {folder}/user.pub\n"
        "StrictModes no\nPidFile none\nUsePAM no\nPermitRootLogin yes\n"
    )
    os.makedirs("/run/sshd", exist_ok=True)
    server = world.peer("/usr/sbin/sshd", "-D", "-e", "-f", folder / "sshd_config")
    until(lambda: "listening" in server.errors(), 10, "sshd listens")
    options = "-o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -F /dev/null"
    go = folder / "go"
    remote = f"until [ -e {go} ]; do sleep 0.1; done; seq 1 100000"
    ssh = f"ssh -f -i {folder}/user {options} -p {PORT} root@{world.peer_address}"
    started = world.stack("sh", "-c", f"{ssh} '{remote}' > {folder}/numbers")
    # It is back before the remote command has its first word.
    started.finish(20)
    go.touch()
    expected = "".join(f"{number}\n" for number in range(1, 100_001))
    until(lambda: (folder / "numbers").read_text() == expected, 20, "all that ssh was sent")

"""Two stacks joined by memif, directly and through DPDK's own driver, which supports either
role."""

import socket
import subprocess

from harness import test
from harness.process import until
from harness.testpmd import Testpmd, is_linked
from harness.world import PYTHON

ONLY = ("inprocess",)
SERVER, CLIENT = "10.77.0.1", "10.77.0.2"
SIZE = 3_000_000
FETCHER = """
import sys, urllib.request
with urllib.request.urlopen(sys.argv[1], timeout=20) as answer, open(sys.argv[2], "wb") as file:
    file.write(answer.read())
print("fetched", flush=True)
sys.stdin.read()
"""


class Ends:
    """A web server on one stack, and a place for clients on another; each in a separate
    namespace."""

    def __init__(self, world, server, client):
        self.world = world
        self.server_kind, self.client_kind = server, client
        self.client_ns = world._namespace("c")
        self.content = bytes(range(256)) * (SIZE // 256)
        pages = world.folder / "pages"
        pages.mkdir()
        (pages / "big").write_bytes(self.content)
        web = [PYTHON, "-u", "-m", "http.server", "8000", "--bind", SERVER, "-d", pages]
        self.server = self.run(world.stack_ns, server, SERVER, *web)
        until(
            lambda: "Serving" in self.server.output() or not self.server.is_running(),
            10,
            "the server listens",
        )
        assert self.server.is_running(), self.server.tail()

    def run(self, namespace, kind, address, *words, **keywords):
        world = self.world
        options = ["--run-dir", world.run_dir, "--device", f"memif:{kind}", "--ip", f"{address}/24"]
        words = [world.slipstack, "run", *options, "--", *words]
        return world.process([*namespace.prefix(), *map(str, words)], **keywords)

    def admin(self, *words):
        """A command beside the client."""
        words = [self.world.slipstack, words[0], "--run-dir", self.world.run_dir, *words[1:]]
        command = self.world.process([*self.client_ns.prefix(), *map(str, words)])
        assert command.wait(10) == 0, command.tail()
        return command.output()

    def fetch(self, forwarder=None):
        """A client starts, fetches the file over a separate link, and ends. Its link comes up and
        goes down while the forwarder is stopped, with nothing left to be sent over it."""
        into = self.world.folder / "fetched"
        words = (PYTHON, "-c", FETCHER, f"http://{SERVER}:8000/big", into)
        client = self.run(self.client_ns, self.client_kind, CLIENT, *words, stdin=subprocess.PIPE)
        if forwarder is not None:
            near, far = (kind.split(",")[0] for kind in (self.server_kind, self.client_kind))
            until(
                lambda: is_linked(self.world, near) and is_linked(self.world, far),
                20,
                "both links are up",
            )
            forwarder.start()
        until(
            lambda: "fetched" in client.output() or not client.is_running(), 25, "the file is there"
        )
        assert client.is_running(), client.tail()
        assert into.read_bytes() == self.content
        into.unlink()
        until(lambda: "8000" not in self.admin("ss", "-tn"), 10, "the connection is closed")
        if forwarder is not None:
            forwarder.stop()
        client.stop()
        self.admin("stop", "--all")
        until(lambda: not self.client_ns.pids(), 10, "the client's keeper has ended")


@test(modes=ONLY, device="none")
def two_stacks_talk_over_memif_and_a_client_that_went_may_come_again(world):
    path = world.folder / "memif.sock"
    ends = Ends(world, f"{path},role=server,id=5,ring=256", f"{path},role=client,id=5")
    assert path.stat().st_mode & 0o777 == 0o600
    ends.fetch()
    ends.fetch()
    status = world.admin("status").output()
    assert f"device memif:{path},role=server,id=5" in status, status
    other = ends.run(ends.client_ns, f"{path},role=server", CLIENT, "true")
    assert other.wait(10) != 0
    assert str(path) in other.errors(), other.errors()


@test(modes=ONLY, device="none")
def a_servers_socket_goes_with_its_device_unless_it_is_anothers_by_then(world):
    path = world.folder / "memif.sock"
    ends = Ends(world, f"{path},role=server", f"{path},role=client")
    ends.server.stop()
    until(lambda: not path.exists(), 10, "the socket's file is gone")
    second = ends.run(world.stack_ns, f"{path},role=server", SERVER, "sleep", "60")
    until(lambda: "reached at" in second.errors(), 10, "the second device is there")
    path.unlink()
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as other:
        other.bind(str(path))
        second.stop()
        until(lambda: not world.stack_ns.pids(), 10, "the keeper has ended")
        assert path.exists()


def passes_through_dpdks_driver(world, queues):
    near, far = world.folder / "near.sock", world.folder / "far.sock"
    devices = [
        f"net_memif0,role=server,id=0,socket={far},socket-abstract=no",
        f"net_memif1,role=client,id=3,socket={near},socket-abstract=no",
    ]
    kinds = (f"{near},role=server,id=3,queues={queues}", f"{far},role=client,id=0,queues={queues}")
    ends = Ends(world, *kinds)
    with Testpmd(world, world.peer_ns, devices, queues) as forwarder:
        ends.fetch(forwarder)
        ends.fetch(forwarder)


@test(modes=ONLY, device="none")
def frames_pass_through_dpdks_driver_in_both_roles(world):
    passes_through_dpdks_driver(world, 1)


@test(modes=ONLY, device="none")
def frames_pass_through_several_queues_of_dpdks_driver(world):
    passes_through_dpdks_driver(world, 4)


ASKER = f"""
import socket, sys
socks = [socket.create_connection(("{SERVER}", 7000), timeout=10) for _ in range(40)]
threads = set()
for _ in range(3):
    for sock in socks:
        sock.sendall(b"who\\n")
        threads.add(sock.recv(100))
    for sock in socks:
        text = b"x" * 20000 + b"\\n"
        sock.sendall(text)
        got = b""
        while not got.endswith(b"\\n"):
            got += sock.recv(65536)
        assert got == text
for sock in socks:
    sock.close()
print(len(threads), "threads", flush=True)
sys.stdin.read()
"""


@test(modes=ONLY, device="none")
def engines_with_a_queue_each_serve_over_one_link(world):
    path = world.folder / "memif.sock"
    client_ns = world._namespace("c")

    def run(namespace, kind, address, *words, more=(), **keywords):
        options = [
            "--run-dir",
            world.run_dir,
            "--device",
            f"memif:{path},{kind}",
            "--ip",
            f"{address}/24",
            *more,
        ]
        return world.process(
            [*namespace.prefix(), *map(str, [world.slipstack, "run", *options, "--", *words])],
            **keywords,
        )

    server = run(
        world.stack_ns,
        "role=server,queues=4",
        SERVER,
        *world.program("engines.py"),
        "own",
        7000,
        4,
        more=("--thread-engines", "4"),
    )
    until(lambda: "reached at" in server.errors(), 10, "the server's stack is up")
    # A client requests more than the server supports; its one engine sends by its own queue.
    for queues in (1, 3, 8):
        words = (PYTHON, "-c", ASKER)
        kind = f"role=client,queues={queues}"
        client = run(client_ns, kind, CLIENT, *words, stdin=subprocess.PIPE)
        until(
            lambda: "threads" in client.output() or not client.is_running(), 30, "all is answered"
        )
        assert client.is_running(), client.tail()
        assert int(client.output().split()[0]) >= 2, client.output()
        # Without its client a server that has not closed a connection would wait for minutes.
        until(
            lambda: ":7000" not in world.admin("ss", "-tn").output(), 10, "connections are closed"
        )
        client.stop()
        words = [world.slipstack, "stop", "--run-dir", world.run_dir, "--all"]
        world.process([*client_ns.prefix(), *map(str, words)]).wait(10)
        until(lambda: not client_ns.pids(), 10, "the client's keeper has ended")


@test(modes=ONLY, device="none")
def impossible_memif_options_are_refused_with_a_sentence(world):
    text = world.folder / "text"
    text.write_text("no socket")
    for kind, words in (
        ("memif", "needs a socket"),
        ("memif:/x,role=both", "role=client or role=server"),
        ("memif:/x,queues=17", "from 1 to 16"),
        (f"memif:{text}", f'"{text}": a file that is no socket has this name'),
        (f"memif:{text}/socket", "Not a directory"),
    ):
        options = ["--run-dir", str(world.run_dir), "--device", kind, "--ip", f"{CLIENT}/24"]
        command = [*world.stack_ns.prefix(), str(world.slipstack), "run", *options, "--", "true"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=20)
        assert done.returncode != 0 and words in done.stderr, done.stderr

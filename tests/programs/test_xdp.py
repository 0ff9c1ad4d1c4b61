"""AF_XDP on one end of a veth pair, the kernel at the other."""

import contextlib
import ctypes
import json
import os
import signal
import socket
import subprocess

from harness import test
from harness.http import Connection, get
from harness.nginx import Nginx
from harness.process import until
from harness.tagged import all_tagged_beside
from test_flapping import give_queues
from test_iperf3 import assert_moved, measure
from test_mtu import HEADERS, LEN, Asker, set_mtu
from test_redis import PORT, benchmark, start_server

ONLY = ("inprocess", "instance")
# The kernel's, on the interface that the stack shares with it.
BESIDE = "10.77.0.3"


def counters(world):
    """Of the interface's XDP program, as the kernel shows it."""
    return world.stack_ns.ip("-d", "link", "show", "eth1")


@test(modes=ONLY)
def nginx_serves_small_and_large_files(world):
    world.kind = "xdp"
    nginx = Nginx(world, workers=2)
    assert get(world, 8080, "/big.bin") == (200, nginx.big)
    with Connection(world.connect(8080)) as connection:
        for _ in range(500):
            assert connection.get() == (200, b"hello from nginx\n")
    assert "prog/xdp" in counters(world)
    report = json.loads(world.admin("status", "--json").output())[0]
    assert report["device"]["device"]["kind"] == "xdp:native", report["device"]
    told = world.admin("status").output()
    assert "device xdp:native: --device xdp" in told
    assert "queues: 1 with AF_XDP; need_wakeup, frames in chunks of 2048 bytes" in told, told


@test(modes=ONLY)
def redis_serves_a_benchmark(world):
    world.kind = "xdp"
    server = start_server(world, world.stack)
    world.wait_port(PORT, process=server)
    words = benchmark(world.address, "set,get,lrange_100", 5000)
    text = world.peer(*words).finish(40)
    assert text.count("requests per second") >= 3, text


@test(modes=ONLY)
def iperf3_moves_bytes_both_ways(world):
    world.kind = "xdp"
    assert_moved(measure(world, world.stack, world.peer, world.address, "-t", 1))
    assert_moved(measure(world, world.stack, world.peer, world.address, "-t", 1, "-R"))


@test(modes=("inprocess",))
def nginx_serves_a_large_file_by_generic_xdp(world):
    world.kind = "xdp:generic"
    nginx = Nginx(world)
    assert get(world, 8080, "/big.bin") == (200, nginx.big)
    assert "prog/xdp" in counters(world) and "xdpgeneric" in counters(world)


@test(modes=ONLY)
def jumbo_frames_carry_bytes_both_ways(world):
    world.kind = "xdp"
    set_mtu(world, 9000)
    server = world.stack(*world.program("sized.py"), 7000)
    world.wait_port(7000, process=server)
    asker = Asker(world)
    assert asker.mss() == 9000 - HEADERS
    told = world.admin("status").output()
    assert "longer ones, up to 9018 bytes, in several (multi-buffer)" in told, told
    for _ in range(2):
        asker.get(LEN)
        asker.put(LEN)
    asker.close()


@test(modes=("inprocess",))
def a_client_receives_from_the_kernel(world):
    world.kind = "xdp"
    (world.folder / "x.txt").write_text("content")
    server = world.peer("/usr/bin/python3", "-u", "-m", "http.server", 8000, cwd=world.folder)
    until(lambda: "Serving HTTP" in server.output(), 10, "the kernel's server listens")
    text = world.stack(
        "curl", "-sS", "--max-time", 5, f"http://{world.peer_address}:8000/x.txt"
    ).finish()
    assert text == "content"


@test(modes=("inprocess",))
def the_kernel_keeps_its_services_and_nothing_is_left_of_a_killed_stack(world):
    world.kind = "xdp"
    world.stack_ns.ip("addr", "add", f"{BESIDE}/24", "dev", "eth1")
    (world.folder / "x.txt").write_text("content")
    server = world.beside("/usr/bin/python3", "-u", "-m", "http.server", 8080, cwd=world.folder)
    until(lambda: "Serving HTTP" in server.output(), 10, "the kernel's server listens")
    ours = world.stack(*world.program("threaded.py"), "server", 7000)
    world.wait_port(7000, process=ours)
    ask = ("curl", "-sS", "--max-time", 5, f"http://{BESIDE}:8080/x.txt")
    assert world.peer(*ask).finish() == "content"
    assert world.peer("ping", "-c", 1, "-W", 5, BESIDE).wait(10) == 0
    report = json.loads(world.admin("status", "--json").output())[0]
    for pid in (report["keeper_pid"], report["standby_pid"], ours.pid):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    until(lambda: "prog/xdp" not in counters(world), 5, "the program is gone")
    assert world.peer(*ask).finish() == "content"
    # The next one has the interface again.
    again = world.stack(*world.program("threaded.py"), "server", 7000)
    world.wait_port(7000, process=again)
    assert "prog/xdp" in counters(world)


@test(modes=("inprocess",))
def frames_of_a_vlan_are_not_the_stacks_though_the_tag_is_beside_them(world):
    world.kind = "xdp"
    server = world.stack(*world.program("threaded.py"), "server", 7000)
    world.wait_port(7000, process=server)
    with all_tagged_beside(world):
        try:
            world.connect(7000, 0.5).close()
            raise AssertionError("the SYN of another network was answered")
        except TimeoutError:
            pass
    world.connect(7000).close()


ASKERS = """
import socket, sys, threading
host, port, threads = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
failures = []
def ask():
    try:
        for _ in range(30):
            with socket.create_connection((host, port), timeout=10) as sock:
                sock.sendall(b"who\\n")
                assert sock.recv(100)
    except Exception as failure:
        failures.append(failure)
asking = [threading.Thread(target=ask) for _ in range(threads)]
for thread in asking:
    thread.start()
for thread in asking:
    thread.join()
print("failures", failures, flush=True)
sys.stdin.read()
"""


def is_served(world):
    """Returns whether the peer's own kernel reaches its server."""
    with contextlib.suppress(OSError), world.at_peer():
        socket.create_connection((world.peer_address, 7000), timeout=1).close()
        return True
    return False


def engines_connect(world, options, told):
    """Three engines connect over an interface with two queues; status has this sentence."""
    server = world.peer(*world.program("engines.py"), "own", 7000, 1)
    until(lambda: is_served(world), 10, "the kernel's server answers")
    assert server.is_running(), server.tail()
    words = ("/usr/bin/python3", "-c", ASKERS, world.peer_address, 7000, 3)
    options = ("--thread-engines", "3", *options)
    client = world.stack(*words, options=options, stdin=subprocess.PIPE)
    until(lambda: "failures" in client.output(), 30, "every thread has its answers")
    assert "failures []" in client.output(), client.output()
    report = json.loads(world.admin("status", "--json").output())[0]
    (line,) = [it for it in report["device"]["mechanisms"] if it.startswith("queues: ")]
    assert line.startswith(f"queues: 2 with AF_XDP; {told}, so connections take any port"), line
    rows = json.loads(world.admin("locality", "--json").finish())
    assert sum(row["connected"] for row in rows) == 90, rows
    assert not any(row["away"] or row["lost"] for row in rows), rows


@test(modes=("inprocess",))
def engines_connect_over_a_card_of_several_queues_that_tells_no_key(world):
    give_queues(world)
    world.kind = "xdp"
    engines_connect(world, (), "the driver tells no RSS key")


@test(modes=("inprocess",))
def with_any_port_the_cards_rss_key_is_ignored(world):
    give_queues(world)
    world.kind = "xdp"
    engines_connect(world, ("--xdp-any-port",), "--xdp-any-port is given")


AF_XDP, SO_BUSY_POLL, SO_PREFER_BUSY_POLL, PIDFD_GETFD = 44, 46, 69, 438


def xdp_sockets(pid):
    """Copies of the AF_XDP sockets of a process."""
    found, handle = [], os.pidfd_open(pid)
    for number in os.listdir(f"/proc/{pid}/fd"):
        try:
            is_socket = os.readlink(f"/proc/{pid}/fd/{number}").startswith("socket:")
        except FileNotFoundError:
            is_socket = False
        copy = ctypes.CDLL(None).syscall(PIDFD_GETFD, handle, int(number), 0) if is_socket else -1
        if copy < 0:
            continue
        # With its family and type, which AF_XDP does not report.
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_RAW, 0, fileno=copy)
        if sock.getsockopt(socket.SOL_SOCKET, socket.SO_DOMAIN) == AF_XDP:
            found.append(sock)
    os.close(handle)
    return found


@test(modes=ONLY)
def with_busy_poll_the_af_xdp_sockets_are_busy_polled(world):
    world.kind = "xdp"
    device_options = world.device_options
    world.device_options = lambda: [*device_options(), "--xdp-busy-poll", "48"]
    nginx = Nginx(world)
    with Connection(world.connect(8080)) as connection:
        for _ in range(500):
            assert connection.get() == (200, b"hello from nginx\n")
    assert get(world, 8080, "/big.bin") == (200, nginx.big)
    report = json.loads(world.admin("status", "--json").output())[0]
    assert report["device"]["device"]["kind"] == "xdp:native,busy=48", report["device"]
    sockets = xdp_sockets(report["keeper_pid"])
    # The kernel does not tell of how many frames it looks for.
    options = (SO_PREFER_BUSY_POLL, SO_BUSY_POLL)
    told = {tuple(it.getsockopt(socket.SOL_SOCKET, option) for option in options) for it in sockets}
    assert told == {(1, 20)}, told


@test(modes=("inprocess",))
def a_mode_without_the_device_is_refused(world):
    for option in (("--xdp-mode", "generic"), ("--xdp-busy-poll", "8"), ("--xdp-any-port",)):
        program = world.stack("true", options=option)
        assert program.wait(10) != 0
        assert f"{option[0]} needs --device xdp" in program.errors(), program.errors()

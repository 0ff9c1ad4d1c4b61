"""AF_XDP on one end of a veth pair, the kernel at the other."""

import contextlib
import json
import os
import signal

from harness import test
from harness.http import Connection, get
from harness.nginx import Nginx
from harness.process import until
from test_iperf3 import assert_moved, measure
from test_redis import PORT, start_server

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
    assert "device xdp:native: --device xdp" in world.admin("status").output()


@test(modes=ONLY)
def redis_serves_a_benchmark(world):
    world.kind = "xdp"
    server = start_server(world, world.stack)
    world.wait_port(PORT, process=server)
    benchmark = ["redis-benchmark", "-h", world.address, "-p", PORT, "-q", "-t", "set,get,lrange_100", "-n", 5000]
    text = world.peer(*benchmark).finish(40)
    assert text.count("requests per second") >= 3, text


@test(modes=ONLY)
def iperf3_moves_bytes_both_ways(world):
    world.kind = "xdp"
    assert_moved(measure(world, world.stack, world.peer, world.address, "-t", 1))
    assert_moved(measure(world, world.stack, world.peer, world.address, "-t", 1, "-R"))


@test(modes=("inprocess",))
def a_generic_program_does_the_same(world):
    world.kind = "xdp:generic"
    nginx = Nginx(world)
    assert get(world, 8080, "/big.bin") == (200, nginx.big)
    assert "prog/xdp" in counters(world) and "xdpgeneric" in counters(world)


@test(modes=("inprocess",))
def a_client_receives_from_the_kernel(world):
    world.kind = "xdp"
    (world.folder / "x.txt").write_text("content")
    server = world.peer("/usr/bin/python3", "-u", "-m", "http.server", 8000, cwd=world.folder)
    until(lambda: "Serving HTTP" in server.output(), 10, "the kernel's server listens")
    text = world.stack("curl", "-sS", "--max-time", 5, f"http://{world.peer_address}:8000/x.txt").finish()
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
def a_mode_without_the_device_is_refused(world):
    program = world.stack("true", options=("--xdp-mode", "generic"))
    assert program.wait(10) != 0
    assert "--xdp-mode needs --device xdp" in program.errors(), program.errors()

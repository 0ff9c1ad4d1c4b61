"""status, why, --strict, pcap, and the way back."""

import json
import os
import subprocess

from harness import test
from harness.http import get
from harness.nginx import Nginx
from harness.process import until

SLIPSTACK = ("inprocess", "instance")
# epb_flags of pcapng.
INBOUND, OUTBOUND = 1, 2


@test(modes=SLIPSTACK)
def status_lists_engines_programs_and_sockets(world):
    nginx = Nginx(world)
    with world.connect(8080):
        table = world.admin("status")
        assert table.child.returncode == 0, table.tail()
        assert "nginx" in table.output() and world.address in table.output(), table.tail()
        report = json.loads(world.admin("status", "--json").output())[0]
    programs = [
        *report["programs"],
        *(program for instance in report["instances"] for program in instance["programs"]),
    ]
    (worker,) = nginx.workers()
    mine = [program for program in programs if program["pid"] == worker]
    assert mine, (worker, programs)
    sockets = mine[0]["sockets"]
    assert any(
        socket["place"] in ("stack", "both") and (socket["local"] or "").endswith(":8080")
        for socket in sockets
    ), sockets
    assert report["engines"], report


@test(modes=SLIPSTACK)
def why_and_status_know_stacks_of_other_network_namespaces(world):
    server = world.stack(*world.program("threaded.py"), "server", 7081)
    world.wait_port(7081, process=server)
    words = [str(world.slipstack), "{}", "--run-dir", str(world.run_dir)]
    asked = world.process(
        world.peer_ns.prefix() + [word.format("why") for word in words] + [str(server.pid)]
    )
    assert asked.wait(10) == 0 and "7081" in asked.output(), asked.tail()
    asked = world.process(world.peer_ns.prefix() + [word.format("status") for word in words])
    assert asked.wait(10) == 0 and "nothing runs" in asked.output(), asked.tail()
    assert "a stack runs on eth1 of another network namespace" in asked.errors(), asked.tail()
    there = asked.errors().split("ask there: ")[1].split()[:2]
    asked = world.process([*there, str(world.slipstack), "status", "--run-dir", str(world.run_dir)])
    assert asked.wait(10) == 0 and "eth1" in asked.output(), asked.tail()


@test(modes=SLIPSTACK)
def why_says_for_each_socket_where_it_is_and_why(world):
    server = world.stack(*world.program("places.py"), world.peer_address, 7060)
    until(lambda: "ready" in server.output() or not server.is_running(), 10, "the sockets are made")
    report = json.loads(world.admin("why", server.pid, "--json").output())
    sockets = {
        socket["local"] or socket["remote"] or str(socket["fd"]): socket
        for socket in report["program"]["sockets"]
    }
    places = {name.rpartition(":")[2]: socket["place"] for name, socket in sockets.items()}
    assert places.get("7060") in ("both", "stack"), report
    assert places.get("7061") == "kernel", report
    assert places.get("7062") == "stack", report
    assert all(socket["why"] for socket in sockets.values()), report
    (asker,) = [
        row for row in report["program"]["sockets"] if row["kind"] == "udp" and row["remote"]
    ]
    address, _, number = (asker["local"] or "").rpartition(":")
    assert address == "10.77.0.2" and int(number) > 1023, asker
    assert f"{asker['local']}  {asker['remote']}" in world.admin("status").output(), asker
    text = world.admin("why", server.pid)
    assert "7061" in text.output() and "kernel" in text.output(), text.tail()


@test(modes=SLIPSTACK)
def why_tells_of_a_listener_that_only_a_worker_waits_on(world):
    server = world.stack(*world.program("masters.py"))
    world.wait_port(9000, process=server)
    until(lambda: server.output().endswith("\n"), 10, "the processes have said their numbers")
    master, worker = server.output().split()

    def why(pid):
        report = json.loads(world.admin("why", pid, "--json").output())
        rows = report["program"]["sockets"]
        assert all(row["local"] == "0.0.0.0:9000" for row in rows), (pid, report)
        return " ".join(row["why"] for row in rows)

    until(lambda: "belongs to the stack" in why(worker), 10, "the worker waits")
    for pid in (server.pid, master):
        assert "not served by this process yet" in why(pid), (pid, why(pid))


@test(modes=SLIPSTACK)
def why_of_strangers_is_one_sentence(world):
    stranger = world.beside("sleep", 30)
    answer = world.admin("why", stranger.pid)
    assert (
        answer.child.returncode != 0 and len(answer.errors().strip().splitlines()) == 1
    ), answer.tail()
    nobody = world.admin("why", 4194303)
    assert nobody.child.returncode != 0 and "4194303" in nobody.errors(), nobody.tail()


@test(modes=("inprocess",))
def status_without_programs_says_so(world):
    answer = world.admin("status")
    assert answer.child.returncode == 0 and "nothing" in answer.output(), answer.tail()


@test(modes=SLIPSTACK)
def without_the_preload_the_program_is_on_the_kernel(world):
    """The same command without `slipstack run`: instant rollback."""
    server = world.beside(*world.program("threaded.py"), "server", 7000)
    until(lambda: is_local(world, 7000), 10, "the server is on loopback")
    assert server.is_running()
    with open(f"/proc/{server.pid}/maps") as maps:
        assert "slipstack" not in maps.read()


def is_local(world, port):
    try:
        with world.connect_beside(port, 1) as sock:
            sock.sendall(b"x")
            return sock.recv(1) == b"x"
    except OSError:
        return False


@test(modes=("inprocess",))
def ld_preload_and_variables_alone_do_the_same(world):
    library = world.slipstack.parent / "libslipstack.so"
    env = {
        "LD_PRELOAD": library,
        "SLIPSTACK_IF": "eth1",
        "SLIPSTACK_IP": "10.77.0.2/24",
        "SLIPSTACK_GW": "10.77.0.1",
        "SLIPSTACK_RUN_DIR": world.run_dir,
        "SLIPSTACK_BIN": world.slipstack,
    }
    words = [
        "env",
        *(f"{name}={value}" for name, value in env.items()),
        *world.program("threaded.py"),
        "server",
        7000,
    ]
    server = world.beside(*words)
    world.wait_port(7000, process=server)


@test(modes=("inprocess",))
def a_configuration_file_names_the_device(world):
    file = world.folder / "slipstack.toml"
    file.write_text('if = "eth1"\nip = "10.77.0.2/24"\ngw = "10.77.0.1"\n')
    words = [
        "run",
        "--run-dir",
        world.run_dir,
        "--config",
        file,
        "--",
        *world.program("threaded.py"),
        "server",
        7000,
    ]
    server = world.beside(world.slipstack, *words)
    world.wait_port(7000, process=server)


@test(modes=("inprocess",))
def a_pcap_file_has_the_frames(world):
    file = world.folder / "frames.pcap"
    nginx = Nginx(world, options=["--pcap", file], user="user root;")
    for _ in range(5):
        assert get(world, 8080)[0] == 200
    nginx.process.stop()
    files = sorted(world.folder.glob("frames*"))
    texts = [
        subprocess.run(
            ["tcpdump", "-n", "-A", "-r", file], capture_output=True, text=True, errors="replace"
        ).stdout
        for file in files
    ]
    assert any("hello from nginx" in text and "10.77.0.2.8080" in text for text in texts), (
        files,
        [text[:300] for text in texts],
    )
    # pcapng: a section header with its byte order, then the interface by its name.
    for start in (file.read_bytes()[:4096] for file in files):
        assert start[:4] == bytes.fromhex("0a0d0d0a") and start[8:12] == bytes.fromhex(
            "4d3c2b1a"
        ), start[:16]
        assert b"eth1" in start, start[:200]
    wrong = [
        line
        for file in files
        for line in subprocess.run(
            ["tcpdump", "-n", "-vv", "-r", file], capture_output=True, text=True, errors="replace"
        ).stdout.splitlines()
        if "incorrect" in line
    ]
    assert not wrong, f"frames with wrong checksums: {wrong[:3]}"


@test(modes=SLIPSTACK)
def a_capture_of_running_programs_has_both_directions(world):
    Nginx(world)
    assert get(world, 8080)[0] == 200
    file = world.folder / "live.pcapng"
    capture = start_capture(world, file, "--port", 8080)
    for _ in range(5):
        assert get(world, 8080)[0] == 200
    capture.stop()
    assert capture.child.returncode == 0 and "received" in capture.errors(), capture.tail()
    check_capture(world, file)


@test(modes=("inprocess",), device="tap")
def a_capture_of_the_tap_has_the_stacks_directions(world):
    server = world.stack(*world.program("threaded.py"), "server", 7000)
    world.wait_port(7000, process=server)
    file = world.folder / "live.pcapng"
    capture = start_capture(world, file, "--count", 6)
    with world.connect(7000) as sock:
        sock.sendall(b"x")
        assert sock.recv(1) == b"x"
    capture.wait(10)
    rows = frames(file, "frame.packet_flags_direction", "ip.src")
    assert rows and all(
        (int(way, 16) == OUTBOUND) == (source == world.address) for way, source in rows if source
    ), rows


@test(modes=("inprocess",))
def a_capture_of_nothing_is_one_sentence(world):
    file = world.folder / "none.pcapng"
    answer = world.admin("capture", file)
    assert (
        answer.child.returncode != 0 and len(answer.errors().strip().splitlines()) == 1
    ), answer.tail()
    assert not file.exists(), "a refused command changes nothing"


def start_capture(world, file, *words):
    words = [world.slipstack, "capture", "--run-dir", world.run_dir, file, *words]
    capture = world.beside(*words)
    until(
        lambda: "capturing on" in capture.errors() or not capture.is_running(),
        10,
        "the capture has begun",
    )
    assert capture.is_running(), capture.tail()
    return capture


def check_capture(world, file):
    rows = frames(
        file,
        "frame.packet_flags_direction",
        "ip.src",
        "tcp.checksum.status",
        "frame.interface_name",
    )
    ways = {(int(way, 16), source) for way, source, _, _ in rows}
    assert ways == {(INBOUND, world.peer_address), (OUTBOUND, world.address)}, ways
    assert {status for _, _, status, _ in rows} == {"1"}, "every TCP checksum is good"
    assert {name for _, _, _, name in rows} == {"eth1"}, rows[:3]


def frames(file, *fields):
    """Values of fields, frame by frame, as tshark reads them."""
    words = ["tshark", "-n", "-r", file, "-T", "fields", "-o", "tcp.check_checksum:TRUE"]
    for field in fields:
        words += ["-e", field]
    text = subprocess.run(
        [str(word) for word in words], capture_output=True, text=True, check=True
    ).stdout
    return [tuple(line.split("\t")) for line in text.splitlines()]


@test(modes=("instance",))
def several_programs_share_one_instance(world):
    nginx = Nginx(world)
    redis = world.stack(
        "redis-server", "--port", 6379, "--save", "", "--protected-mode", "no", cwd=world.folder
    )
    world.wait_port(6379, process=redis)
    assert get(world, 8080)[0] == 200
    text = world.stack("redis-cli", "-h", world.address, "-p", 6379, "set", "a", "1").finish()
    assert text.strip() == "OK"
    text = world.stack("curl", "-sS", "--max-time", 5, nginx.url()).finish()
    assert text == "hello from nginx\n"
    os.kill(redis.pid, 9)
    redis.wait()
    assert get(world, 8080)[0] == 200, "the death of one program does not harm the others"


@test(modes=("instance",))
def stop_ends_the_instance(world):
    instance = world.start_instance("t")
    world.instance = instance
    answer = world.admin("stop", "t")
    assert answer.child.returncode == 0, answer.tail()
    instance.wait(5)
    again = world.admin("stop", "t")
    assert again.child.returncode != 0 and "t" in again.errors(), again.tail()

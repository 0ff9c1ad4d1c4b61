"""Programs that are written against the C library (ff_*), F-Stack's and others."""

import contextlib
import json
import os
import re
import select
import signal
import socket
import struct
import subprocess
import time

from harness import test
from harness.http import get
from harness.native import EXAMPLES, HEADERS, STANDARDS, compiled, of_placement, start
from harness.process import until
from harness.world import PROGRAMS, PYTHON

ON_STACK = ("inprocess", "instance")
ETHERTYPE_IPV4 = 0x0800
IP_DF = 0x40


@test(modes=ON_STACK)
def an_epoll_server_in_the_loop_of_ff_run_serves(world):
    server = start(world, compiled(world, EXAMPLES / "epoll_http.c", of_placement(world)))
    world.wait_port(80, process=server)
    for _ in range(20):
        assert get(world, 80, "/") == (200, b"hello from the stack\n")
    assert is_closed_after_answer(world)
    assert server.stop() == 0


def is_closed_after_answer(world):
    """Whether a request of HTTP/1.0 is answered, and the server ends the connection first."""
    with world.connect(80) as sock, sock.makefile("rb") as answer:
        sock.sendall(b"GET / HTTP/1.0\r\n\r\n")
        head, body = answer.read().split(b"\r\n\r\n")
    return b"\r\nConnection: close" in head and body == b"hello from the stack\n"


@test(modes=("inprocess",))
def every_example_is_short_and_is_c_and_cpp_for_two_compilers(world):
    for source in sorted(EXAMPLES.glob("*.c")):
        assert len(source.read_text().splitlines()) < 150, source
        for compiler, standard in STANDARDS.items():
            words = [
                compiler,
                *standard,
                "-D_GNU_SOURCE",
                "-Wall",
                "-Wextra",
                "-Werror",
                "-fsyntax-only",
                f"-I{HEADERS}",
                str(source),
            ]
            made = subprocess.run(words, capture_output=True, text=True)
            assert made.returncode == 0, made.stderr


@test(modes=ON_STACK)
def invalid_calls_fail_with_an_error(world):
    # A config.ini of its folder would be read.
    bad_input = compiled(world, PROGRAMS / "bad_input.c")
    with world.at_peer():
        wire = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETHERTYPE_IPV4))
    program = start(world, bad_input, env={"FOLDER": world.folder, "PEER": world.PEER})
    assert program.wait(20) == 0, program.tail()
    with wire:
        wire.settimeout(5)
        of_port = struct.pack("!H", 7101)
        frame = next(
            frame for frame in iter(lambda: wire.recv(2000), b"") if frame[36:38] == of_port
        )
    assert frame[20] & IP_DF, frame.hex()
    unknown = world.beside(compiled(world, EXAMPLES / "epoll_http.c"), "--no-such-option")
    assert unknown.wait(10) == 1 and "there is no option '--no-such-option'" in unknown.errors()


@test(modes=ON_STACK)
def a_configuration_file_names_address_and_gateway(world):
    conf = world.folder / "config.ini"
    conf.write_text(
        f"[dpdk]\nlcore_mask=1\nport_list=0\n\n[port0]\naddr={world.STACK}\nnetmask=255.255.255.0\nbroadcast=10.77.0.255\ngateway={world.PEER}\n"
    )
    place = ["--instance", world.ready_instance()] if world.mode == "instance" else ["--if", "eth1"]
    program = compiled(world, EXAMPLES / "kqueue_http.c", "clang")
    server = world.beside(
        program,
        "--conf",
        conf,
        "--proc-type=primary",
        "--proc-id=0",
        "--run-dir",
        world.run_dir,
        *place,
    )
    world.wait_port(80, process=server)
    assert get(world, 80, "/") == (200, b"hello from the stack\n")
    assert server.stop() == 0


@test(modes=ON_STACK)
def one_program_listens_on_a_port_of_the_stack_and_of_the_kernel(world):
    server = start(world, compiled(world, EXAMPLES / "mixed.c", of_placement(world)))
    world.wait_port(8080, process=server)
    for sock, side in (
        (world.connect(8080), b"stack: "),
        (world.connect_beside(8080), b"kernel: "),
    ):
        with sock:
            sock.sendall(b"hello")
            text = b""
            while len(text) < len(side) + 5:
                text += sock.recv(100)
            assert text == side + b"hello"


@test(modes=ON_STACK)
def datagrams_come_back_from_the_address_they_were_sent_to(world):
    server = start(world, compiled(world, EXAMPLES / "udp_echo.c", of_placement(world)))
    with world.at_peer():
        sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    answers(sock, b"first", (world.address, 7))
    for number in range(20):
        sock.sendto(b"%d" % number, (world.address, 7))
        assert sock.recvfrom(100) == (b"%d" % number, (world.address, 7))
    sock.close()
    assert server.stop() == 0


@test(modes=ON_STACK)
def bytes_made_in_the_ring_and_in_buffers_arrive(world):
    server = start(world, compiled(world, EXAMPLES / "zero_copy.c", of_placement(world)))
    world.wait_port(9000, process=server)
    for kind in "rzw":
        for length in (1, 1000, 3_000_000):
            with world.connect(9000) as sock:
                sock.sendall(f"{kind}{length}\n".encode())
                text = b""
                while chunk := sock.recv(262144):
                    text += chunk
            wanted = bytes(range(97, 123)) * (length // 26 + 1)
            assert text == wanted[:length], (kind, length, len(text))
    assert server.is_running(), server.tail()


@test(modes=ON_STACK)
def segments_that_are_kept_stay_as_they_are_and_come_back_in_any_order(world):
    server = start(world, compiled(world, PROGRAMS / "keeps.c"))
    world.wait_port(9200, process=server)
    data = os.urandom(3_000_000)
    with world.connect(9200) as sock:
        sock.sendall(b"r" + data)
        sock.shutdown(socket.SHUT_WR)
        assert sock.recv(100).decode() == f"{fnv(data):016x}", server.tail()
    with world.connect(9200) as sock, world.connect(9201) as other:
        sock.sendall(b"k")
        sock.setblocking(False)
        # Kept buffers stop their sender, and no other.
        until(
            lambda: select.select([sock], [], [], 0)[0]
            or not server.is_running()
            or advanced(sock),
            20,
            "the program has kept all",
        )
        sock.setblocking(True)
        kept = int(sock.recv(100))
        assert 0 < kept < 64_000_000
        other.sendall(b"x")
        assert other.recv(1) == b"x"
        other.close()
        sock.shutdown(socket.SHUT_WR)
        assert int(sock.recv(100)) >= kept, server.tail()
    with world.connect(9200) as sock:
        sock.sendall(b"cc")
        assert sock.recv(1) == b"", "closed with a segment out: an end, no reset"
    with world.connect(9200) as sock:
        sock.sendall(b"f!")
        for _ in range(100):
            sock.sendall(b"x")
            assert sock.recv(1) == b"x", server.tail()
        sock.sendall(b".")
        assert sock.recv(4) == b"kept", server.tail()
    assert server.is_running(), server.tail()


def advanced(sock):
    """Sends what there is room for; that is never all."""
    with contextlib.suppress(BlockingIOError):
        while True:
            sock.send(bytes(65536))
    return False


def fnv(data):
    total = 0
    for byte in data:
        total = ((total ^ byte) * 1099511628211) & 0xFFFFFFFFFFFFFFFF
    return total


@test(modes=("inprocess",))
def a_dispatcher_answers_before_the_stack(world):
    for compiler in ("gcc", "clang++"):
        server = start(world, compiled(world, EXAMPLES / "dns_reply.c", compiler))
        dns_is_answered(world)
        assert server.stop() == 0, server.tail()


def dns_is_answered(world):
    with world.at_peer():
        sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    question = b"\x03www\x07example\x00\x00\x01\x00\x01"
    answers(sock, struct.pack("!6H", 0, 0x0100, 1, 0, 0, 0) + question, (world.address, 53))
    for number in range(50):
        sock.sendto(struct.pack("!6H", number, 0x0100, 1, 0, 0, 0) + question, (world.address, 53))
        answer, source = sock.recvfrom(512)
        assert source == (world.address, 53) and answer[:4] == struct.pack("!HH", number, 0x8180)
        assert answer.endswith(bytes((192, 0, 2, 1)))
    sock.close()


# Asks until there is an answer, and prints it.
ASKS = """
import socket, sys
sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
sock.settimeout(0.3)
for _ in range(30):
    sock.sendto(b"????", (sys.argv[1], 7))
    try:
        print(sock.recv(2000).hex())
        break
    except OSError:
        pass
"""


@test(modes=("inprocess",))
def answers_leave_by_the_interface_and_the_vlan_that_the_question_came_by(world):
    world.use_second_pair()
    tagged = [
        world.slipstack,
        "run",
        "--run-dir",
        world.run_dir,
        "--if",
        "eth2",
        "--ip",
        "10.79.0.1/24",
        "--vlan",
        "7",
        "--",
    ]
    for workers in (0, 2):
        server = start(
            world,
            compiled(world, PROGRAMS / "answers_with_tag.c"),
            "--vlan",
            "7,ip=10.79.0.2/24",
            workers,
        )
        for where, before, address, tag in (
            (world.peer, [], world.STACK, 0),
            (world.peer_b, [], world.STACK_B, 0),
            (world.peer_b, tagged, "10.79.0.2", 7),
        ):
            asker = where(*before, PYTHON, "-c", ASKS, address).finish(20)
            assert asker.strip() == (struct.pack("!HH", tag != 0, tag) + b"l" * 600).hex(), (
                address,
                server.tail(),
            )
        assert server.stop() == 0, server.tail()


@test(modes=("instance",))
def a_dispatcher_has_its_own_engine_beside_a_running_instance(world):
    """Started as for F-Stack, in the surroundings of the adapter's users."""
    served = world.stack(*world.program("echo_http.py"), 8080)
    world.wait_port(8080, process=served)
    conf = world.folder / "config.ini"
    conf.write_text(
        f"[dpdk]\nlcore_mask=1\nport_list=0\n\n[port0]\nif_name=eth1\naddr={world.STACK}\nnetmask=255.255.255.0\ngateway={world.PEER}\n"
    )
    words = ["--conf", conf, "--proc-type=primary", "--proc-id=0", "--run-dir", world.run_dir]
    program = compiled(world, EXAMPLES / "dns_reply.c", "g++")
    server = world.beside(program, *words, env={"FF_PROC_ID": 0, "FF_NB_FSTACK_INSTANCE": 1})
    dns_is_answered(world)
    assert get(world, 8080, "/")[0] == 200, served.tail()
    assert server.stop() == 0, server.tail()


@test(modes=("instance",))
def a_dispatcher_without_traffic_gets_an_error(world):
    server = start(world, compiled(world, PROGRAMS / "answers_with_tag.c"), 0)
    until(lambda: "sees the frames of the program's own engine" in server.errors(), 5, "a sentence")
    assert server.stop() == 0, server.tail()
    with_workers = start(world, compiled(world, PROGRAMS / "answers_with_tag.c"), 2)
    assert with_workers.wait(5) == 2, with_workers.tail()


@test(modes=("inprocess",))
def a_dispatchers_workers_answer_in_bursts(world):
    for shape, compiler in (((3, 0), "gcc"), ((3, 25), "clang++"), ((0, 0), "clang")):
        program = compiled(world, EXAMPLES / "udp_workers.c", compiler)
        server = start(world, program, *shape)
        with world.at_peer():
            sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        with sock:
            answers(sock, b"first", (world.address, 7))
            for number in range(10):
                sent = {b"%d/%d" % (number, at) for at in range(96)}
                server.signal(signal.SIGSTOP)
                for text in sent:
                    sock.sendto(text, (world.address, 7))
                server.signal(signal.SIGCONT)
                assert {sock.recvfrom(100) for _ in sent} == {
                    (text, (world.address, 7)) for text in sent
                }
        assert server.stop() == 0, server.tail()
        rows = re.findall(
            r"worker \d: (\d+) frames in (\d+) bursts of up to (\d+), (\d+) answers, 0 found",
            server.output(),
        )
        rows = [[int(figure) for figure in row] for row in rows]
        assert len(rows) == shape[0], server.tail()
        parts = 4 if shape[1] else 3
        for frames, _, largest, given in rows:
            assert 960 / parts * 0.8 <= frames == given <= 960 / parts * 1.3 and largest >= 8, rows


@test(modes=("inprocess",))
def a_dispatcher_hands_frames_to_another_process(world):
    conf = world.folder / "config.ini"
    conf.write_text(
        f"[dpdk]\nlcore_mask=3\nport_list=0\n\n[port0]\naddr={world.STACK}\nnetmask=255.255.255.0\ngateway={world.PEER}\n"
    )
    program = compiled(world, PROGRAMS / "queue_to.c")
    servers = []
    for number, kind in enumerate(("primary", "secondary")):
        words = [
            "--conf",
            conf,
            f"--proc-type={kind}",
            f"--proc-id={number}",
            "--run-dir",
            world.run_dir,
            "--if",
            "eth1",
        ]
        servers.append(world.beside(program, *words))
        until(
            lambda: "ready" in servers[-1].output() or not servers[-1].is_running(),
            10,
            "it is bound",
        )
    with contextlib.ExitStack() as stack:
        for number in range(40):
            with world.at_peer():
                sock = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
            text = b"%d" % number
            if number == 0:
                answers(sock, text, (world.address, 7))
            sock.settimeout(5)
            sock.sendto(text, (world.address, 7))
            assert sock.recv(100) == text
    assert [server.stop() for server in servers] == [0, 0], servers[0].tail()
    for number, kind in enumerate(("primary", "secondary")):
        assert f"ready: process {number} of 2, {kind}\n" in servers[number].output()
    handed = [int(re.search(r"handed over (\d+)", server.output())[1]) for server in servers]
    assert handed[0] > 0 and handed[1] == 0, handed


def answers(sock, text, to):
    """Sends requests until the server has bound its port and answers; late answers are read too."""
    sock.settimeout(0.2)
    end = time.monotonic() + 10
    while True:
        sock.sendto(text, to)
        try:
            sock.recv(65536)
            break
        except OSError:
            assert time.monotonic() < end, "nobody answers"
    with contextlib.suppress(OSError):
        while True:
            sock.recv(65536)
    sock.settimeout(5)


@test(modes=("inprocess",))
def processes_of_one_configuration_share_its_ports(world):
    conf = world.folder / "config.ini"
    conf.write_text(
        f"[dpdk]\nlcore_mask=3\nport_list=0\n\n[port0]\naddr={world.STACK}\nnetmask=255.255.255.0\nbroadcast=10.77.0.255\ngateway={world.PEER}\n"
    )
    program = compiled(world, EXAMPLES / "kqueue_http.c")
    words = ["--conf", conf, "--run-dir", world.run_dir, "--if", "eth1"]
    servers = [
        world.beside(program, *words, f"--proc-type={kind}", f"--proc-id={number}")
        for number, kind in enumerate(("primary", "secondary"))
    ]
    pids = [str(server.pid) for server in servers]
    until(lambda: all(pid in listening(world, 80) for pid in pids), 10, "both listen")
    for _ in range(40):
        assert get(world, 80, "/") == (200, b"hello from the stack\n")
    other = start(world, compiled(world, EXAMPLES / "epoll_http.c"))
    assert other.wait(10) == 1 and "Address already in use" in other.errors(), other.tail()


def listening(world, port):
    """The processes that `status` names for a listening port."""
    lines = world.admin("status").output().splitlines()
    return [
        pid.strip(",")
        for line in lines
        if f":{port} " in line and line.startswith("tcp")
        for pid in line.split()[2:]
    ]


@test(modes=ON_STACK)
def a_preloaded_program_finds_kqueue_and_the_stack_by_its_flag(world):
    program = compiled(world, PROGRAMS / "kqueue_preloaded.c", library="slipstack")
    server = world.stack(program)
    world.wait_port(7200, process=server)
    for _ in range(5):
        with world.connect(7200) as sock:
            sock.sendall(b"hello")
            assert sock.recv(100) == b"hello"
    assert server.stop() == 0, server.tail()


@test(modes=ON_STACK)
def interfaces_routes_and_sysctls_are_changed_while_it_runs(world):
    program = world.beside(
        compiled(world, PROGRAMS / "capi_network.c"), world.PEER, world.STACK, *world.options()
    )
    assert program.wait(20) == 0, program.tail()


@test(modes=ON_STACK)
def coroutines_wait_for_sockets_and_for_time_on_one_thread(world):
    for compiler in ("gcc", "clang++"):
        server = start(world, compiled(world, EXAMPLES / "coroutines.c", compiler))
        world.wait_port(7, process=server)
        with contextlib.ExitStack() as stack:
            socks = [stack.enter_context(world.connect(7)) for _ in range(20)]
            begun = time.monotonic()
            for number, sock in enumerate(socks):
                sock.sendall(b"sleep %d\n" % (number % 2 * 300))
            for number, sock in enumerate(socks[::2] + socks[1::2]):
                assert sock.recv(100) == (
                    b"sleep 0\n" if number < 10 else b"sleep 300\n"
                ), server.tail()
                if number == 9:
                    assert time.monotonic() - begun < 0.3, "those that need not wait have waited"
            assert 0.3 <= time.monotonic() - begun < 1
            assert socks[0].recv(100) == b"idle\n" and socks[0].recv(100) == b""
        assert server.stop() == 0, server.tail()


@test(modes=ON_STACK)
def a_program_chooses_its_source_addresses_and_sends_frames_of_its_own(world):
    other = "10.77.0.9"
    if world.mode == "instance":
        world.instance = world.start_instance("t", "--ip", f"{other}/24")
        options = world.options()
    else:
        options = world.options(("--ip", f"{other}/24"))
    with contextlib.ExitStack() as stack:
        with world.at_peer():
            for port in (7400, 7401):
                stack.enter_context(socket.create_server((world.PEER, port)))
            datagrams = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
            datagrams.bind((world.PEER, 7402))
        program = world.beside(
            compiled(world, PROGRAMS / "chosen_sources.c"),
            world.PEER,
            world.STACK,
            other,
            *options,
            stdin=subprocess.PIPE,
        )
        if world.mode == "inprocess":
            datagrams.settimeout(20)
            assert datagrams.recvfrom(100) == (b"raw", (other, 7403)), program.tail()
        program.child.stdin.close()
        assert program.wait(20) == 0, program.tail()


@test(modes=("inprocess",))
def a_client_has_an_engine_for_each_thread(world):
    world.peer(PYTHON, PROGRAMS / "asyncio_echo.py", "server", world.PEER, 7300)
    program = compiled(world, EXAMPLES / "engines_client.c", "g++")
    client = world.beside(
        program, world.PEER, 7300, 3, 10, 0, *world.options(("--thread-engines", "4"))
    )

    def engines():
        reports = json.loads(world.admin("status", "--json").output() or "[]")
        return sum(
            engine["pid"] == client.pid for report in reports for engine in report["engines"]
        )

    until(lambda: not client.is_running() or engines() == 3, 10, "three engines")
    assert client.stop() == 0, client.tail()
    assert (
        len([line for line in client.output().splitlines() if int(line.split()[2]) > 0]) == 3
    ), client.tail()
    again = world.beside(
        compiled(world, EXAMPLES / "engines_client.c", "clang"),
        world.PEER,
        7300,
        2,
        5,
        40,
        *world.options(),
    )
    assert again.wait(20) == 0, again.tail()
    assert again.output().splitlines() == ["thread 0: 200 answers", "thread 1: 200 answers"]

"""Programs written as those for F-Stack and for its adapter are: compiled unchanged, linked, and
started by its command lines."""

import contextlib
import os
import random
import shutil
import socket
import subprocess
import threading

from harness import test
from harness.http import get
from harness.native import HEADERS, LIBRARY, STANDARDS, compiled, of_placement, start
from harness.process import until
from harness.world import PROGRAMS, ROOT
from test_engines import ask, engines

THEIRS = PROGRAMS / "fstack"
SERVED = (200, b"served")


@test(modes=("inprocess",))
def a_kqueue_program_serves_both_families_and_logs(world):
    world.use_ipv6()
    log = world.folder / "program.log"
    server = start(
        world, compiled(world, THEIRS / "kqueue_both_families.c", "clang++"), env={"LOG_FILE": log}
    )
    for address in (world.STACK, world.STACK6):
        world.wait_port(80, process=server, address=address)
        with world.connect(80, address=address) as sock:
            sock.sendall(b"GET / HTTP/1.1\r\n\r\n")
            assert sock.recv(1000).endswith(b"served")
    assert "sockfd:" in log.read_text()


@test(modes=("instance",))
def a_program_with_zero_copy_sends_chains_and_bytes(world):
    server = start(
        world, compiled(world, THEIRS / "zero_copy_pieces.c", "clang", flags=["-DFSTACK_ZC_SEND"])
    )
    world.wait_port(80, process=server)
    with world.connect(80) as sock:
        for _ in range(3):
            sock.sendall(b"go")
            text = b""
            while len(text) < 6 + 65536:
                piece = sock.recv(65536)
                assert piece, server.tail()
                text += piece
            assert text == b"bytes:" + b"z" * 65536


@test(modes=("inprocess", "instance"))
def received_data_is_kept_in_place_and_echoed_from_buffers(world):
    program = compiled(world, THEIRS / "zero_copy_echo.c", flags=["-fsanitize=address"])
    server = start(world, program, env={"ASAN_OPTIONS": "detect_leaks=0"})
    world.wait_port(80, process=server)
    with world.connect(80) as sock:
        sock.sendall(b"g")
        greeting = b"".join(iter(lambda: sock.recv(65536), b""))
    assert greeting == b"p" * 8192 + b"c" * 8192, (len(greeting), server.tail())
    sent = random.Random(24).randbytes(5 << 20)
    with world.connect(80) as sock:
        sock.settimeout(20)
        sock.sendall(b"e")
        writer = threading.Thread(target=lambda: (sock.sendall(sent), sock.shutdown(1)))
        writer.start()
        echoed = b"".join(iter(lambda: sock.recv(1 << 20), b""))
        writer.join()
    assert echoed == sent, (len(echoed), server.tail())


@test(modes=("inprocess", "instance"))
def threads_with_a_socket_and_an_epoll_set_each_serve(world):
    server = world.stack(compiled(world, THEIRS / "epoll_threads.c", library="slipstack"))
    world.wait_port(80, process=server)
    for _ in range(20):
        assert get(world, 80, "/") == SERVED


@test(modes=("inprocess",))
def threads_with_a_socket_and_a_kqueue_each_have_an_engine_each(world):
    server = world.stack(compiled(world, THEIRS / "kqueue_threads.c", library="slipstack"))
    world.wait_port(80, process=server)
    until(lambda: engines(world, server) == 2, 10, "two engines")
    for _ in range(20):
        assert get(world, 80, "/") == SERVED


@test(modes=("inprocess",))
def one_port_is_served_on_the_stack_and_on_the_kernel(world):
    server = world.stack(compiled(world, THEIRS / "epoll_both_sides.c", library="slipstack"))
    world.wait_port(80, process=server)
    for connect in (world.connect, world.connect_beside):
        with connect(80) as sock:
            sock.sendall(b"GET / HTTP/1.1\r\n\r\n")
            assert sock.recv(1000).endswith(b"served")
    until(
        lambda: {"stack", "kernel"} <= set(server.output().split()),
        5,
        "both listeners have been used",
    )


@test(modes=("instance",))
def the_adapters_command_lines_work_without_slipstacks_command(world):
    adapter = world.folder / "libff_syscall.so"
    shutil.copy(LIBRARY / "libslipstack.so", adapter)
    world.start_instance("0")
    where = {"SLIPSTACK_RUN_DIR": world.run_dir}
    linked = compiled(
        world,
        THEIRS / "kqueue_threads.c",
        flags=[f"-L{world.folder}", f"-Wl,-rpath,{world.folder}"],
        library="ff_syscall",
    )
    plain = compiled(world, THEIRS / "epoll_threads.c", "clang", library="pthread")
    for program, more in ((linked, {}), (plain, {"LD_PRELOAD": adapter, "FF_PROC_ID": 0})):
        server = world.beside(program, env={**where, **more})
        world.wait_port(80, process=server)
        assert get(world, 80, "/") == SERVED
        until(lambda: str(server.pid) in world.admin("status").output(), 5, "the status names it")
        server.stop()


@test(modes=("inprocess", "instance"))
def every_group_of_functions_does_its_work_in_one_program(world):
    for compiler in ("gcc", "clang++"):
        program = start(
            world,
            compiled(world, THEIRS / "every_group.c", compiler),
            env={"STACK": world.STACK, "FOLDER": world.folder},
        )
        assert program.wait(20) == 0, program.tail()


@test(modes=("inprocess", "instance"))
def any_thread_and_any_child_may_use_a_connection(world):
    """A line that begins with f is answered by a child, with t by a new thread."""
    server = start(world, compiled(world, THEIRS / "threads_and_forks.c", of_placement(world)))
    world.wait_port(9300, process=server)
    failed = []

    def talk(sock, dice):
        try:
            with sock:
                for _ in range(12):
                    text = b"%c%d\n" % (dice.choice(b"eft"), dice.randrange(10**50))
                    assert ask(sock, text) == text
        except Exception as error:
            failed.append(error)

    socks = [world.connect(9300) for _ in range(8)]
    talks = [
        threading.Thread(target=talk, args=(sock, random.Random(seed)))
        for seed, sock in enumerate(socks)
    ]
    for it in talks:
        it.start()
    for it in talks:
        it.join()
    assert not failed and server.is_running(), (failed, server.tail())


@test(modes=("inprocess", "instance"))
def random_calls_with_random_arguments_do_no_harm(world):
    """SECONDS_LONG and SEED of the environment: how long, and which calls."""
    program = compiled(world, THEIRS / "random_calls.c", "gcc", flags=["-fsanitize=address"])
    wanted = {
        "SECONDS_LONG": os.environ.get("SECONDS_LONG", "2"),
        "SEED": os.environ.get("SEED", "0x9e3779b97f4a7c15"),
    }
    started = start(world, program, env={**wanted, "ASAN_OPTIONS": "detect_leaks=0"})
    with world.at_peer():
        sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with sock:
        for number in range(int(wanted["SECONDS_LONG"]) * 100):
            sock.sendto(b"frame %d" % number, (world.address, 1000 + number % 8))
            with contextlib.suppress(subprocess.TimeoutExpired):
                started.child.wait(0.01)
    code = started.wait(20)
    assert code == 0, f"{code}\n{started.tail()}"


@test(modes=("inprocess",))
def a_copy_of_the_command_named_fstack_starts_the_instances_that_programs_use(world):
    shutil.copy(world.slipstack, world.folder / "fstack")
    conf = world.folder / "config.ini"
    conf.write_text(
        f"[dpdk]\nlcore_mask=3\nport_list=0\n\n[port0]\nif_name=eth1\naddr={world.STACK}\nnetmask=255.255.255.0\ngateway={world.PEER}\n"
    )
    where = {"SLIPSTACK_RUN_DIR": world.run_dir}
    for number in (0, 1):
        instance = world.beside(world.folder / "fstack", "-c", conf, "--proc-id", number, env=where)
        until(
            lambda: instance.errors() or instance.output() or not instance.is_running(),
            10,
            "the instance is ready",
        )
        assert instance.is_running(), instance.tail()
    program = compiled(world, THEIRS / "epoll_threads.c", library="pthread")
    server = world.beside(
        program, env={**where, "LD_PRELOAD": LIBRARY / "libslipstack.so", "FF_PROC_ID": 1}
    )
    world.wait_port(80, process=server)
    assert get(world, 80, "/") == SERVED


@test(modes=("inprocess",))
def an_installed_library_is_found_by_pkg_config(world):
    where = world.folder / "root"
    made = subprocess.run(
        ["make", "-o", "build", "install", f"DESTDIR={where}", "PREFIX=/opt/s"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert made.returncode == 0, made.stderr
    search = {
        **os.environ,
        "PKG_CONFIG_PATH": str(where / "opt/s/lib/pkgconfig"),
        "PKG_CONFIG_SYSROOT_DIR": str(where),
    }
    ours = {"PATH": f"{where}/opt/s/bin:{os.environ['PATH']}", "LOG_FILE": world.folder / "log"}
    for compiler, kind in (("gcc", []), ("clang++", ["--static"])):
        asked = subprocess.run(
            ["pkg-config", *kind, "--cflags", "--libs", "libfstack"],
            env=search,
            capture_output=True,
            text=True,
            check=True,
        )
        assert str(HEADERS) not in asked.stdout
        program = world.folder / f"installed-{compiler}"
        words = [compiler, *STANDARDS[compiler], "-D_GNU_SOURCE"]
        words += [str(THEIRS / "kqueue_both_families.c"), "-o", str(program), "-x", "none"]
        # With both kinds of the library installed `-l` means the shared one.
        found = asked.stdout.replace("-lfstack", "-l:libslipstack.a") if kind else asked.stdout
        words += [*found.split(), f"-Wl,-rpath,{where}/opt/s/lib"]
        subprocess.run(words, check=True, cwd=world.folder)
        server = start(world, program, env=ours)
        world.wait_port(80, process=server)
        with world.connect(80) as sock:
            sock.sendall(b"GET / HTTP/1.1\r\n\r\n")
            assert sock.recv(1000).endswith(b"served"), (world.folder / "log").read_text()
        server.stop()
    names = {path.name for path in (where / "opt/s/lib").iterdir()}
    assert {
        "libfstack.so",
        "libfstack.a",
        "libslipstack.so",
        "libslipstack.a",
        "libff_syscall.so",
    } <= names


@test(modes=("inprocess", "instance"))
def traffic_is_reported_in_both_placements(world):
    server = start(world, compiled(world, THEIRS / "traffic.c"))
    world.wait_port(80, process=server)
    with world.connect(80) as sock:
        until(lambda: len(server.output().splitlines()) >= 3, 5, "it has accepted")
        sock.sendall(b"t" * 100_000)
        sock.shutdown(socket.SHUT_WR)
        assert len(b"".join(iter(lambda: sock.recv(65536), b""))) == 100_000
    until(lambda: len(server.output().splitlines()) >= 4, 5, "it tells")
    lines = server.output().splitlines()[2:4]
    before, after = [[int(word) for word in line.split()] for line in lines]
    packets, received, answers, sent, *dropped = [b - a for a, b in zip(before, after)]
    assert packets > 0 and 100_000 < received < 150_000, (before, after)
    # Some of the answer may wait for the peer's window when the program tells.
    assert answers > 0 and 10_000 < sent < 150_000, (before, after)
    assert dropped == [0, 0], (before, after)

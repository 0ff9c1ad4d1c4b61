"""Programs that call the library as F-Stack's ports of nginx and redis do: libc's names are
theirs."""

import contextlib
import os
import signal
import socket
import threading

from harness import test
from harness.http import get
from harness.native import LIBRARY, compiled
from harness.process import until
from harness.world import PROGRAMS

THEIRS = PROGRAMS / "fstack"
WORKERS = 2


def configured(world, processes):
    conf = world.folder / "config.ini"
    mask = f"{(1 << processes) - 1:x}"
    conf.write_text(
        f"[dpdk]\nlcore_mask={mask}\nport_list=0\n\n[port0]\nif_name=eth1\naddr={world.STACK}\nnetmask=255.255.255.0\ngateway={world.PEER}\n"
    )
    return conf


@contextlib.contextmanager
def answering(world, port, text, times):
    """A server at the peer that sends `text` to each of `times` connections and closes them."""
    with world.at_peer():
        listener = socket.create_server((world.PEER, port))

    def serve():
        for _ in range(times):
            sock, _ = listener.accept()
            with sock:
                sock.recv(100)
                sock.sendall(text)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    with listener:
        yield
        thread.join(10)


@test(modes=("inprocess",))
def workers_that_are_forked_and_then_init_serve_like_nginx(world):
    program = compiled(world, THEIRS / "worker_processes.c")
    server = world.beside(program, configured(world, WORKERS), WORKERS, world.run_dir, world.PEER)
    world.wait_port(80, process=server)
    with world.connect(80) as sock:
        for _ in range(3):
            sock.sendall(b"GET /hello HTTP/1.1\r\n\r\n")
            assert sock.recv(1000).endswith(b"\r\n\r\nhello"), server.tail()
    assert get(world, 80, "/large") == (200, b"L" * 300000)
    with answering(world, 8000, b"upstream", 10):
        for _ in range(10):
            assert get(world, 80, "/upstream") == (200, b"upstream"), server.tail()
    pids = {get(world, 80, "/pid")[1] for _ in range(40)}
    assert len(pids) == WORKERS, pids
    with world.connect_beside(81) as sock:
        sock.sendall(b"GET /pid HTTP/1.1\r\n\r\n")
        assert sock.recv(1000).split(b"\r\n\r\n")[1] in pids
    os.kill(int(min(pids)), signal.SIGKILL)
    until(
        lambda: len({get(world, 80, "/pid")[1] for _ in range(40)} - {min(pids)}) == WORKERS,
        10,
        "the worker has come back",
    )
    assert server.stop() == 0, server.tail()
    assert sorted(server.output().splitlines()) == [
        f"worker {number}: notified 1" for number in range(WORKERS)
    ]


def store(world, static):
    """Of the static library as C in one placement and as C++ in the other."""
    library = ":libfstack.a" if static else "fstack"
    compiler = ("clang" if world.mode == "instance" else "g++") if static else "gcc"
    return compiled(world, THEIRS / "event_store.c", compiler, ["-lm", "-ldl"], library)


@test(modes=("inprocess", "instance"))
def a_loop_of_events_with_timers_a_fork_and_a_thread_serves_like_redis(world):
    for static in (False, True):
        conf = configured(world, 1)
        place = ["--instance", world.ready_instance()] if world.mode == "instance" else []
        words = [
            "--conf",
            conf,
            "--proc-type=primary",
            "--proc-id=0",
            "--run-dir",
            world.run_dir,
            *place,
        ]
        # The static library is not installed beside the command.
        path = {"PATH": f"{LIBRARY}:{os.environ['PATH']}"}
        server = world.beside(store(world, static), *words, world.folder, env=path)
        world.wait_port(6379, process=server)
        with world.connect(6379) as sock, sock.makefile("rwb") as lines:

            def ask(text):
                lines.write(text.encode() + b"\r\n")
                lines.flush()
                return lines.readline().decode().strip()

            assert ask("SET a one") == "OK" and ask("GET a") == "one"
            with answering(world, 6380, b"b two\r\nc three\r\n", 1):
                assert ask(f"FROM {world.PEER}") == "OK"
            assert ask("GET c") == "three"
            assert ask("SAVE") == "OK"
            # The parent serves while its child saves.
            with world.connect(6379) as other:
                other.sendall(b"GET b\r\nGET a\r\n")
                text = b""
                while text.count(b"\n") < 2:
                    text += other.recv(100)
                assert text == b"two\r\none\r\n"
            until(lambda: ask("SAVES") == "1", 10, "it is saved")
            assert (world.folder / "dump").read_text() == "a\nb\nc\n"
            until(lambda: int(ask("TICKS")) > 5, 5, "timers go on")
            lines.write(b"QUIT\r\n")
            lines.flush()
            assert server.wait(10) == 0, server.tail()
        assert "ended after" in server.output()

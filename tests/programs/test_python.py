"""Python programs: http.server, asyncio, threads, makefile and subprocess."""

import hashlib
import socket
import subprocess
import threading

from harness import Skip, test
from harness.http import get
from harness.process import until


@test
def http_server_serves_files(world):
    data = hashlib.shake_256(b"file").digest(3_000_000)
    (world.folder / "file.bin").write_bytes(data)
    server = world.stack("/usr/bin/python3", "-m", "http.server", 8000, cwd=world.folder)
    world.wait_port(8000, process=server)
    for _ in range(10):
        assert get(world, 8000, "/file.bin") == (200, data)
    assert get(world, 8000, "/none")[0] == 404


@test
def asyncio_server_echoes_to_many_kernel_clients(world):
    server = world.stack(*world.program("asyncio_echo.py"), "server", "0.0.0.0", 7000)
    world.wait_port(7000, process=server)
    client = world.peer(
        *world.program("asyncio_echo.py"), "client", world.address, 7000, 100, 100_000
    )
    assert client.finish(60).strip() == "100 echoed"


@test
def asyncio_client_is_echoed_by_the_kernel(world):
    world.peer(*world.program("asyncio_echo.py"), "server", world.peer_address, 7000)
    world.wait_port(7000, address=world.peer_address)
    client = world.stack(
        *world.program("asyncio_echo.py"), "client", world.peer_address, 7000, 100, 100_000
    )
    assert client.finish(60).strip() == "100 echoed"


@test
def asyncio_talks_to_itself_over_the_stack_and_over_loopback(world):
    both = world.stack(
        *world.program("asyncio_echo.py"),
        "both",
        "0.0.0.0",
        7000,
        20,
        50_000,
        env={"TARGETS": f"{world.address},127.0.0.1"},
    )
    assert both.finish(60).strip() == "20 echoed\n20 echoed", both.tail()


@test
def two_programs_on_the_stack_talk(world):
    server = world.stack(*world.program("asyncio_echo.py"), "server", "0.0.0.0", 7000)
    world.wait_port(7000, process=server)
    client = world.stack(
        *world.program("asyncio_echo.py"), "client", world.address, 7000, 20, 100_000
    )
    assert client.finish(60).strip() == "20 echoed"


@test
def threads_of_a_client_use_their_own_connections(world):
    world.peer(*world.program("asyncio_echo.py"), "server", world.peer_address, 7000)
    world.wait_port(7000, address=world.peer_address)
    client = world.stack(*world.program("threaded.py"), "client", world.peer_address, 7000, 16, 50)
    assert client.finish(60).strip() == "16 threads done"


@test
def threads_of_a_server_serve_one_connection_each(world):
    server = world.stack(*world.program("threaded.py"), "server", 7000)
    world.wait_port(7000, process=server)
    client = world.peer(*world.program("threaded.py"), "client", world.address, 7000, 16, 50)
    assert client.finish(60).strip() == "16 threads done"


@test
def one_connection_is_read_and_written_by_two_threads(world):
    server = world.stack(*world.program("threaded.py"), "server", 7000)
    world.wait_port(7000, process=server)
    world.peer(*world.program("threaded.py"), "server", 7000)
    world.wait_port(7000, address=world.peer_address)
    duplex = world.stack(
        *world.program("threaded.py"), "duplex", world.peer_address, 7000, 20_000_000
    )
    assert duplex.finish(60).strip() == "20000000 bytes both ways"
    data = hashlib.shake_256(b"duplex").digest(4_000_000)
    with world.connect(7000) as sock:
        sender = threading.Thread(target=sock.sendall, args=(data,))
        sender.start()
        got = b""
        while len(got) < len(data):
            chunk = sock.recv(65536)
            assert chunk
            got += chunk
        sender.join()
    assert got == data


@test
def makefile_and_subprocess_work_together(world):
    server = world.stack(*world.program("makefile_subprocess.py"), 7100)
    world.wait_port(7100, process=server)
    for number in range(5):
        with world.connect(7100) as sock:
            lines = sock.makefile("rw", newline="\n")
            lines.write(f"echo hello {number}; cat\n")
            lines.write("first line\nsecond line\n\n")
            lines.flush()
            sock.shutdown(1)
            assert (
                lines.read() == f"hello {number}\nfirst line\nsecond line\n"
            ), "what the child printed"


@test
def select_poll_and_timeouts_behave(world):
    server = world.stack(*world.program("waiting.py"), 7300)
    world.wait_port(7300, process=server)
    for way in ("select", "poll", "epoll", "timeout"):
        with world.connect(7300) as sock:
            sock.sendall(way.encode() + b"\n")
            text = sock.makefile().read()
            assert text == f"{way}: idle ready closed\n", text
            sock.close()


def is_answered(probe, server):
    try:
        probe.sendto(b"x", server)
        return probe.recv(100) == b"answer to x"
    except OSError:
        return False


@test
def many_udp_clients_each_get_their_own_answer(world):
    world.peer(*world.program("udp_echo.py"), 7401)
    with world.at_peer():
        probe = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    probe.settimeout(0.1)
    until(lambda: is_answered(probe, (world.peer_address, 7401)), 10, "the peer answers")
    client = world.stack(*world.program("udp_clients.py"), world.peer_address, 7401)
    assert "its own answer" in client.finish()


@test
def udp_is_answered(world):
    server = world.stack(*world.program("udp_echo.py"), 7400)
    import socket

    def is_answered():
        assert server.is_running(), server.tail()
        with world.at_peer():
            sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        with sock:
            sock.settimeout(0.3)
            sock.sendto(b"question", (world.address, 7400))
            try:
                return sock.recvfrom(2048) == (b"answer to question", (world.address, 7400))
            except (socket.timeout, ConnectionRefusedError):
                return False

    until(is_answered, 10, "an answer")
    for _ in range(50):
        assert is_answered()


@test
def a_busy_process_leaves_new_connections_to_its_idle_sibling(world):
    server = world.stack(*world.program("prefork.py"))
    world.wait_port(9000, process=server)
    for _ in range(5):
        with world.connect(9000):  # occupies one of the two
            for _ in range(10):
                with world.connect(9000, 5) as client:
                    client.sendall(b"hello")
                    assert client.recv(100).endswith(b" hello")


def turns_are_taken(world, how, ports):
    server = world.stack(*world.program("turns.py"), how)
    world.wait_port(9000, process=server)
    for port in ports:
        with world.connect(port, 5) as client:
            client.sendall(b"hello")
            assert client.recv(100).endswith(b" hello")


@test
def of_processes_that_take_turns_at_accepting_none_keeps_a_connection(world):
    turns_are_taken(world, "poll", [9000, 9001] * 30)


@test
def of_processes_that_take_turns_at_an_epoll_set_none_keeps_a_connection(world):
    turns_are_taken(world, "epoll", [9000, 9001] * 30)


@test
def of_processes_that_take_turns_at_a_blocking_accept_none_keeps_a_connection(world):
    turns_are_taken(world, "accept", [9000] * 60)


def others_serve(world, how):
    server = world.stack(*world.program("elsewhere.py"), how)
    world.wait_port(9000, process=server)
    for _ in range(3):
        with world.connect(9000, 5) as guest:
            guest.sendall(b"stay")
            assert guest.recv(100).endswith(b" stay")
            for _ in range(10):
                with world.connect(9000, 2) as client:
                    client.sendall(b"hello")
                    assert client.recv(100).endswith(b" hello")


@test
def while_a_worker_reads_connections_go_to_another(world):
    others_serve(world, "read")


@test
def while_a_worker_computes_connections_go_to_another(world):
    others_serve(world, "compute")


@test
def while_a_worker_waits_for_a_thread_connections_go_to_another(world):
    others_serve(world, "lock")


LIBRARY = """
#include <arpa/inet.h>
#include <unistd.h>
int talk(const char *ip, int port) {
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_port = htons(port)};
    inet_pton(AF_INET, ip, &addr.sin_addr);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    return connect(fd, (void *)&addr, sizeof addr) || write(fd, "hello", 5) != 5 || close(fd);
}
"""
LOAD = """
import ctypes, os, sys
library = ctypes.CDLL(sys.argv[1], mode=os.RTLD_NOW | os.RTLD_DEEPBIND)
sys.exit(library.talk(sys.argv[2].encode(), int(sys.argv[3])))
"""


@test
def a_library_that_looks_into_its_own_libraries_first_is_on_the_stack(world):
    (world.folder / "deep.c").write_text(LIBRARY)
    library = world.folder / "deep.so"
    command = ["gcc", "-shared", "-fPIC", "-o", library, world.folder / "deep.c"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise Skip(f"gcc cannot build a library: {done.stderr.strip()[:100]}")
    with world.at_peer():
        server = socket.create_server((world.peer_address, 7310))
    with server:
        server.settimeout(10)
        program = world.stack("/usr/bin/python3", "-c", LOAD, library, world.peer_address, 7310)
        connection, peer = server.accept()
        with connection:
            assert (connection.recv(5, socket.MSG_WAITALL), peer[0]) == (b"hello", world.address)
        assert program.wait(10) == 0

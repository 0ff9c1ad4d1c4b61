"""A program of tokio's multi-threaded runtime: its sockets join a set in which another thread
already waits."""

import threading

from harness import Skip, test
from harness.world import TARGET


def tokio(*words):
    built = TARGET / "debug" / "slipstack-tokio-echo"
    if not built.exists():
        raise Skip("slipstack-tokio-echo is not built: cargo build -p slipstack-tokio-echo")
    return [built, *words]


def is_echoed(world, number, bytes_):
    data = number.to_bytes(4, "big") * (bytes_ // 4)
    with world.connect(7000) as sock:
        sender = threading.Thread(target=sock.sendall, args=(data,))
        sender.start()
        got = bytearray()
        while len(got) < len(data):
            piece = sock.recv(1 << 16)
            assert piece, f"an end after {len(got)} bytes"
            got += piece
        sender.join()
        assert got == data


@test
def a_server_of_tokios_is_reached(world):
    server = world.stack(*tokio("server", "0.0.0.0:7000"))
    world.wait_port(7000, process=server)
    for number in range(20):
        is_echoed(world, number, 200_000)
    client = world.peer(
        *world.program("asyncio_echo.py"), "client", world.address, 7000, 100, 100_000
    )
    assert client.finish(60).strip() == "100 echoed"


@test
def a_server_of_tokios_answers_datagrams(world):
    server = world.stack(*tokio("server", "0.0.0.0:7000"))
    world.wait_port(7000, process=server)
    client = world.peer(*tokio("datagrams", f"{world.address}:7000", 200))
    assert client.finish(30).strip() == "200 answered"


@test
def a_client_of_tokios_is_echoed(world):
    world.peer(*world.program("asyncio_echo.py"), "server", world.peer_address, 7000)
    world.wait_port(7000, address=world.peer_address)
    client = world.stack(*tokio("client", f"{world.peer_address}:7000", 50, 100_000))
    assert client.finish(60).strip() == "50 echoed"


@test
def two_programs_of_tokios_talk(world):
    server = world.stack(*tokio("server", "0.0.0.0:7000"))
    world.wait_port(7000, process=server)
    client = world.stack(*tokio("client", f"{world.address}:7000", 20, 100_000))
    assert client.finish(60).strip() == "20 echoed"

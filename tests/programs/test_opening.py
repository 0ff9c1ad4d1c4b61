"""Connections that open with data (TCP Fast Open)."""

from harness import test
from harness.process import until


def set_fast_open(world, bits):
    if world.mode == "kernel":
        world.stack_ns.sysctl("net.ipv4.tcp_fastopen", bits)
    else:
        world.admin("sysctl", "-w", f"net.ipv4.tcp_fastopen={bits}").finish()


def asked(world, port):
    with world.connect(8000) as client:
        client.sendall(f"{world.peer_address} {port}".encode())
        return client.recv(100).decode()


@test
def the_client_side_of_fast_open_can_be_off(world):
    """MSG_FASTOPEN is EOPNOTSUPP then; a connection that is refused is refused in the call, with
    the server's cookie and without."""
    world.peer_ns.sysctl("net.ipv4.tcp_fastopen", 3)
    code = (
        "import socket\n"
        "with socket.create_server(('', 7900)) as server:\n"
        "    server.setsockopt(socket.IPPROTO_TCP, socket.TCP_FASTOPEN, 16)\n"
        "    while True:\n"
        "        with server.accept()[0] as sock:\n"
        "            while sock.recv(100):\n"
        "                pass\n"
    )
    world.peer("/usr/bin/python3", "-c", code)
    server = world.stack(*world.program("opens_with_data.py"), 8000)
    world.wait_port(8000, process=server)
    until(lambda: asked(world, 7900) == "sent 5", 5, "the peer listens")
    for bits, opened, refused in (
        (1, "sent 5", "ECONNREFUSED"),
        (2, "EOPNOTSUPP", "EOPNOTSUPP"),
        (3, "sent 5", "ECONNREFUSED"),
    ):
        set_fast_open(world, bits)
        for _ in range(3):
            found = asked(world, 7900)
            assert found == opened, (bits, found)
        found = asked(world, 7901)
        assert found == refused, (bits, found)

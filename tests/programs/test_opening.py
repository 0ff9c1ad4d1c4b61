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


@test(modes=("inprocess", "instance"))
def data_of_a_call_that_handlers_interrupt_is_sent_once(world):
    """The kernel sends it twice if the call is made again after its SYN has left."""
    count = 300
    for bits in (3, 1):
        # With the server's cookie, and without.
        world.peer_ns.sysctl("net.ipv4.tcp_fastopen", bits)
        port = 7910 + bits
        code = (
            "import socket\n"
            f"with socket.create_server(('', {port}), backlog={count}) as server:\n"
            "    server.setsockopt(socket.IPPROTO_TCP, socket.TCP_FASTOPEN, 16)\n"
            "    print('listens', flush=True)\n"
            f"    for _ in range({count}):\n"
            "        with server.accept()[0] as sock:\n"
            "            data = b''\n"
            "            while more := sock.recv(100):\n"
            "                data += more\n"
            "            print(data, flush=True)\n"
        )
        peer = world.peer("/usr/bin/python3", "-c", code)
        until(lambda: "listens" in peer.output(), 10, "the peer listens")
        program = world.program("opens_interrupted.py")
        world.stack(*program, world.peer_address, port, count).finish(60)
        assert peer.wait(10) == 0
        assert peer.output().splitlines()[1:] == ["b'hello!'"] * count, peer.tail()

"""Programs under limits: what bounds one of them must not bound the keeper that serves all."""

from harness import test

# Soft limits: who may not lift hard ones keeps them.
TIGHT = ["prlimit", "--nofile=64:", "--fsize=4096:", "--cpu=600:", "--as=40000000000:"]


def serves(world, port):
    with world.connect(port) as sock:
        sock.sendall(b"hello\n")
        assert b"hello" in sock.recv(100)


@test
def the_first_programs_limits_are_its_own(world):
    """It starts the keeper; the second one comes to a keeper that has room."""
    before = ["taskset", "-c", "0", "nice", "-n", "5", *TIGHT]
    first = world.stack(*world.program("threaded.py"), "server", 7000, before=before)
    world.wait_port(7000, process=first)
    servers = [world.stack(*world.program("threaded.py"), "server", 7001 + number) for number in range(4)]
    for number, server in enumerate(servers):
        world.wait_port(7001 + number, process=server)
    for port in range(7000, 7005):
        serves(world, port)
    assert "slipstack" not in "".join(server.errors() for server in servers).replace("slipstack: the program is reached", "")

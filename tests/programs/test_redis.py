"""redis-server, redis-cli and redis-benchmark, unmodified."""

import socket

from harness import test

PORT = 6379
ARGUMENTS = ["--port", PORT, "--save", "", "--appendonly", "no", "--protected-mode", "no"]


def start_server(world, start, *more):
    server = start("redis-server", *ARGUMENTS, *more, cwd=world.folder)
    return server


def benchmark(address, tests, count):
    """The words that run redis-benchmark against `address`."""
    of_server = ["redis-benchmark", "-h", address, "-p", PORT]
    return [*of_server, "-q", "-t", tests, "-n", count]


@test
def serves_a_kernel_client(world):
    server = start_server(world, world.stack)
    world.wait_port(PORT, process=server)
    cli = ["redis-cli", "-h", world.address, "-p", PORT]
    assert world.peer(*cli, "set", "key", "value").finish().strip() == "OK"
    assert world.peer(*cli, "get", "key").finish().strip() == "value"
    value = "v" * 1_000_000
    with world.connect(PORT) as sock:
        sock.sendall(
            f"*3\r\n$3\r\nSET\r\n$3\r\nbig\r\n${len(value)}\r\n{value}\r\n*2\r\n$3\r\nGET\r\n$3\r\nbig\r\n".encode()
        )
        expected = f"+OK\r\n${len(value)}\r\n{value}\r\n".encode()
        assert receive(sock, len(expected)) == expected


@test
def serves_redis_benchmark_on_the_kernel(world):
    server = start_server(world, world.stack)
    world.wait_port(PORT, process=server)
    words = benchmark(world.address, "set,get,lrange_100", 20000)
    text = world.peer(*words).finish(40)
    assert text.count("requests per second") >= 3, text
    text = world.peer(*words, "-P", 16).finish(40)
    assert text.count("requests per second") >= 3, text


@test
def redis_benchmark_runs_on_the_stack(world):
    start_server(world, world.peer)
    wait_kernel_server(world)
    words = [*benchmark(world.peer_address, "set,get", 20000), "-c", 50]
    text = world.stack(*words).finish(40)
    assert text.count("requests per second") == 2, text


@test
def redis_cli_runs_on_the_stack(world):
    start_server(world, world.peer)
    wait_kernel_server(world)
    cli = ["redis-cli", "-h", world.peer_address, "-p", PORT]
    assert world.stack(*cli, "set", "a", "1").finish().strip() == "OK"
    assert world.stack(*cli, "incr", "a").finish().strip() == "2"
    text = world.stack(*cli, "info", "server").finish()
    assert "redis_version" in text


@test
def blocking_and_subscribed_clients_are_woken(world):
    server = start_server(world, world.stack)
    world.wait_port(PORT, process=server)
    with world.connect(PORT) as waiting, world.connect(PORT) as pushing:
        waiting.sendall(b"BLPOP queue 10\r\n")
        pushing.sendall(b"RPUSH queue item\r\n")
        assert receive(waiting, 25) == b"*2\r\n$5\r\nqueue\r\n$4\r\nitem\r\n"
        waiting.sendall(b"SUBSCRIBE news\r\n")
        waiting.recv(4096)
        for number in range(100):
            pushing.sendall(f"PUBLISH news {number:03}\r\n".encode())
        one = len(b"*3\r\n$7\r\nmessage\r\n$4\r\nnews\r\n$3\r\n000\r\n")
        assert receive(waiting, 100 * one).count(b"message") == 100


@test
def threaded_io_works(world):
    server = start_server(world, world.stack, "--io-threads", 2, "--io-threads-do-reads", "yes")
    world.wait_port(PORT, process=server)
    words = [*benchmark(world.address, "set,get", 5000), "-c", 50]
    assert world.peer(*words).finish(40).count("requests per second") == 2


@test
def saves_and_replicates(world):
    """A fork that shares the server's sockets, and a client and a server in one program."""
    server = start_server(world, world.stack)
    world.wait_port(PORT, process=server)
    cli = ["redis-cli", "-h", world.address, "-p", PORT]
    world.peer(*cli, "set", "key", "value").finish()
    assert "saving started" in world.peer(*cli, "bgsave").finish()
    replica = world.stack(
        "redis-server",
        "--port",
        6380,
        "--replicaof",
        world.peer_address,
        6381,
        "--save",
        "",
        "--protected-mode",
        "no",
        cwd=world.folder,
    )
    start_other = [
        "redis-server",
        "--port",
        6381,
        "--save",
        "",
        "--protected-mode",
        "no",
        "--repl-diskless-sync-delay",
        "0",
    ]
    (world.folder / "other").mkdir()
    world.peer(*start_other, cwd=world.folder / "other")
    other = ["redis-cli", "-h", world.peer_address, "-p", 6381]
    wait_kernel_server(world, 6381)
    world.peer(*other, "set", "copied", "yes").finish()
    world.wait_port(6380, process=replica)

    def is_copied():
        return (
            world.peer("redis-cli", "-h", world.address, "-p", 6380, "get", "copied")
            .finish()
            .strip()
            == "yes"
        )

    from harness.process import until

    until(is_copied, 20, "the replica has the value")


def wait_kernel_server(world, port=PORT):
    world.wait_port(port, address=world.peer_address)


def receive(sock, length):
    data = b""
    while len(data) < length:
        try:
            chunk = sock.recv(262144)
        except socket.timeout:
            raise AssertionError(f"{len(data)} of {length} bytes came") from None
        assert chunk, f"the connection ended after {len(data)} of {length} bytes"
        data += chunk
    return data

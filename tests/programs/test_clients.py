"""curl, wrk and ab, on the stack against the kernel and the other way round."""

import hashlib
import re

from harness import test
from harness.nginx import Nginx


def kernel_files(world, names=("one.bin",), size=2_000_000):
    """python's http.server at the peer with random files; their digests."""
    folder = world.folder / "peer-files"
    folder.mkdir()
    digests = {}
    for name in names:
        data = hashlib.shake_256(name.encode()).digest(size)
        (folder / name).write_bytes(data)
        digests[name] = hashlib.sha256(data).hexdigest()
    world.peer(
        "/usr/bin/python3", "-m", "http.server", 8000, "--bind", world.peer_address, cwd=folder
    )
    world.wait_port(8000, address=world.peer_address)
    return digests


@test
def curl_on_the_stack_downloads(world):
    digests = kernel_files(world, ["one.bin", "two.bin"])
    base = f"http://{world.peer_address}:8000"
    out = world.folder / "got.bin"
    world.stack("curl", "-sS", "--max-time", 20, "-o", out, f"{base}/one.bin").finish()
    assert hashlib.sha256(out.read_bytes()).hexdigest() == digests["one.bin"]
    second = world.folder / "got2.bin"
    world.stack(
        "curl",
        "-sS",
        "--max-time",
        20,
        "-o",
        out,
        f"{base}/one.bin",
        "-o",
        second,
        f"{base}/two.bin",
    ).finish()
    assert hashlib.sha256(second.read_bytes()).hexdigest() == digests["two.bin"]


@test
def curl_on_the_stack_downloads_in_parallel(world):
    names = [f"{number}.bin" for number in range(8)]
    digests = kernel_files(world, names, 500_000)
    words = ["curl", "-sS", "--max-time", 20, "--parallel"]
    for name in names:
        words += ["-o", world.folder / f"got-{name}", f"http://{world.peer_address}:8000/{name}"]
    world.stack(*words).finish()
    for name in names:
        assert (
            hashlib.sha256((world.folder / f"got-{name}").read_bytes()).hexdigest() == digests[name]
        )


@test
def curl_in_valgrind_downloads(world):
    """A debugger must work on a program on the stack too."""
    digests = kernel_files(world, ["one.bin"], 20_000)
    out = world.folder / "got.bin"
    url = f"http://{world.peer_address}:8000/one.bin"
    valgrind = ["valgrind", "--tool=none", "--quiet", "--error-exitcode=9"]
    world.stack(*valgrind, "curl", "-sS", "--max-time", 60, "-o", out, url).finish(60)
    assert hashlib.sha256(out.read_bytes()).hexdigest() == digests["one.bin"]


@test
def curl_on_the_stack_says_why_it_cannot_connect(world):
    refused = world.stack("curl", "-sS", "--max-time", 10, f"http://{world.peer_address}:9/")
    assert refused.wait(15) == 7, refused.tail()
    assert "connect to server" in refused.errors(), refused.errors()
    if world.device == "veth":
        silent = world.stack("curl", "-sS", "--connect-timeout", 2, "http://10.77.0.99:9/")
        assert silent.wait(15) in (7, 28), silent.tail()


@test
def curl_on_the_kernel_downloads_and_uploads(world):
    server = world.stack(*world.program("echo_http.py"), 8080)
    world.wait_port(8080, process=server)
    data = hashlib.shake_256(b"upload").digest(5_000_000)
    source, target = world.folder / "source.bin", world.folder / "target.bin"
    source.write_bytes(data)
    world.peer(
        "curl",
        "-sS",
        "--max-time",
        30,
        "--data-binary",
        f"@{source}",
        "-o",
        target,
        f"http://{world.address}:8080/echo",
    ).finish(40)
    assert target.read_bytes() == data


@test
def curl_on_the_stack_uploads(world):
    world.peer(*world.program("echo_http.py"), 8080)
    world.wait_port(8080, address=world.peer_address)
    data = hashlib.shake_256(b"upload").digest(5_000_000)
    source, target = world.folder / "source.bin", world.folder / "target.bin"
    source.write_bytes(data)
    world.stack(
        "curl",
        "-sS",
        "--max-time",
        30,
        "--data-binary",
        f"@{source}",
        "-o",
        target,
        f"http://{world.peer_address}:8080/echo",
    ).finish(40)
    assert target.read_bytes() == data


@test
def curl_on_the_kernel_reads_nginx_on_the_stack(world):
    nginx = Nginx(world)
    text = world.peer("curl", "-sS", "--max-time", 10, "-i", nginx.url()).finish()
    assert text.startswith("HTTP/1.1 200") and text.endswith("hello from nginx\n")


def kernel_nginx(world):
    """nginx at the peer, on the kernel."""
    real = world.stack
    world.stack = lambda *words, options=(), **keywords: world.peer(*words, **keywords)
    waiting = world.wait_port
    world.wait_port = lambda port, **keywords: waiting(port, address=world.peer_address)
    try:
        return Nginx(world)
    finally:
        world.stack, world.wait_port = real, waiting


@test
def wrk_runs_on_the_stack(world):
    kernel_nginx(world)
    wrk = world.stack(
        "wrk", "-t", 2, "-c", 40, "-d", "2s", f"http://{world.peer_address}:8080/hello"
    )
    text = wrk.finish(30)
    assert_wrk(text)


@test
def wrk_on_the_kernel_loads_the_stack(world):
    nginx = Nginx(world, workers=2)
    assert_wrk(world.peer("wrk", "-t", 2, "-c", 100, "-d", "2s", nginx.url()).finish(30))
    assert_wrk(
        world.peer(
            "wrk", "-t", 1, "-c", 20, "-d", "2s", "-H", "Connection: close", nginx.url()
        ).finish(30)
    )
    assert not nginx.alerts(), nginx.alerts()


@test
def ab_runs_on_the_stack(world):
    kernel_nginx(world)
    for keep in ([], ["-k"]):
        ab = world.stack(
            "ab", "-q", "-n", 3000, "-c", 20, *keep, f"http://{world.peer_address}:8080/hello"
        )
        assert_ab(ab.finish(40), 3000)


@test
def ab_on_the_kernel_loads_the_stack(world):
    nginx = Nginx(world)
    for keep in ([], ["-k"]):
        ab = world.peer("ab", "-q", "-n", 5000, "-c", 50, *keep, nginx.url())
        assert_ab(ab.finish(40), 5000)


def assert_wrk(text):
    requests = re.search(r"(\d+) requests in", text)
    assert requests and int(requests.group(1)) > 50, text
    assert "Socket errors" not in text and "Non-2xx" not in text, text


def assert_ab(text, count):
    assert re.search(rf"Complete requests:\s+{count}\b", text), text
    assert re.search(r"Failed requests:\s+0\b", text), text
    assert "Non-2xx" not in text, text

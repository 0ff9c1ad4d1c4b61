"""Without any option: Slipstack makes a TAP, which programs share, and removes it at the end."""

import json

from harness import test
from harness.http import get
from harness.process import until

ONLY = ("inprocess", "instance")


@test(modes=ONLY, device="tap")
def the_line_says_where_the_program_is_and_the_host_reaches_it(world):
    (world.folder / "x.txt").write_text("content")
    server = world.stack("/usr/bin/python3", "-m", "http.server", 8000, cwd=world.folder)
    assert world.address.startswith("10.254."), server.errors()
    lines = [line for line in server.errors().splitlines() if line.startswith("slipstack:")]
    assert len(lines) == 1, lines
    world.wait_port(8000, process=server)
    for _ in range(5):
        assert get(world, 8000, "/x.txt") == (200, b"content")


@test(modes=ONLY, device="tap")
def a_second_program_joins_and_the_two_talk(world):
    server = world.stack(*world.program("asyncio_echo.py"), "server", "0.0.0.0", 7000)
    world.wait_port(7000, process=server)
    first = world.address
    client = world.stack(*world.program("asyncio_echo.py"), "client", first, 7000, 10, 100_000)
    assert client.finish(30).strip() == "10 echoed", client.tail()
    if world.mode == "inprocess":
        assert len(json.loads(world.admin("status", "--json").output())) == 1


@test(modes=ONLY, device="tap")
def a_client_reaches_the_host(world):
    (world.folder / "x.txt").write_text("content")
    server = world.beside("/usr/bin/python3", "-u", "-m", "http.server", 8000, cwd=world.folder)
    until(lambda: "Serving HTTP" in server.output(), 10, "the kernel's server listens")
    keep = world.stack("sleep", 20)
    host = world.peer_address
    text = world.stack("curl", "-sS", "--max-time", 5, f"http://{host}:8000/x.txt").finish()
    assert text == "content"
    keep.stop()


@test(modes=("inprocess",), device="tap")
def the_device_is_gone_after_the_last_program(world):
    before = world.stack_ns.ip("-o", "link")
    server = world.stack(*world.program("threaded.py"), "server", 7000)
    world.wait_port(7000, process=server)
    assert world.stack_ns.ip("-o", "link") != before
    server.stop()
    until(lambda: world.stack_ns.ip("-o", "link") == before, 5, "the device is gone")


@test(modes=("inprocess",), device="tap")
def a_program_that_ends_at_once_leaves_nothing(world):
    for _ in range(3):
        assert world.stack("true").wait(10) == 0
    until(lambda: "slip" not in world.stack_ns.ip("-o", "link"), 5, "the device is gone")

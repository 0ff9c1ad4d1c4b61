"""Programs that are written against the C library (ff_*), F-Stack's and others."""

from harness import test
from harness.http import get
from harness.native import EXAMPLES, compiled, start

ON_STACK = ("inprocess", "instance")


@test(modes=ON_STACK)
def an_epoll_server_in_the_loop_of_ff_run_serves(world):
    server = start(world, compiled(world, EXAMPLES / "epoll_http.c"))
    world.wait_port(80, process=server)
    for _ in range(20):
        assert get(world, 80, "/") == (200, b"hello from the stack\n")
    assert server.stop() == 0

"""Proxies whose connections have their clients' addresses (IP_TRANSPARENT)."""

from harness import test
from harness.nginx import Nginx
from harness.process import until

PORT = 8000
PROXY = f"""
location ~ ^/to-server(/.*) {{
    proxy_bind $remote_addr transparent;
    proxy_pass http://10.78.0.1:{PORT}$1;
}}
"""
SIZE = 2_000_000


def serve(world, has_ipv6=False):
    """A server behind the second interface that has its way back through the stack."""
    if has_ipv6:
        world.use_ipv6()
    world.use_second_pair()
    world.peer_b_ns.ip("route", "add", "10.77.0.0/24", "via", world.STACK_B)
    if has_ipv6:
        world.peer_b_ns.ip("-6", "route", "add", "fd00:77::/64", "via", world.STACK6_B)
    if world.mode == "kernel":
        # Packets from the server are for this host, whatever their address is.
        for family in ("-4", "-6") if has_ipv6 else ("-4",):
            world.stack_ns.ip(family, "rule", "add", "iif", "eth2", "lookup", "100")
            world.stack_ns.ip(
                family, "route", "add", "local", "default", "dev", "lo", "table", "100"
            )
    server = world.peer_b(*world.program("who_asks.py"), PORT)
    until(lambda: is_open(world, server), 10, "the server listens")


def is_open(world, server):
    assert server.is_running(), server.tail()
    words = ["curl", "-sS", "--max-time", "2", f"http://127.0.0.1:{PORT}/1"]
    asked = world.peer_b(*words)
    asked.wait(10)
    return asked.output().startswith("127.0.0.1")


@test(modes=("kernel", "inprocess", "instance"))
def nginx_asks_its_server_from_the_clients_address(world):
    serve(world)
    world.peer_ns.ip("addr", "add", "10.77.0.7/24", "dev", "eth1")
    # The kernel beside the stack passes packets on, and would pass on the server's answers.
    world.stack_ns.sysctl("net.ipv4.ip_forward", 1)
    nginx = Nginx(world, workers=2, more=PROXY, user="user root;")
    for client in (world.PEER, "10.77.0.7"):
        for size in (0, SIZE):
            url = nginx.url(f"/to-server/{size}")
            curl = world.peer("curl", "-sS", "--max-time", 20, "--interface", client, url)
            curl.finish()
            said, _, body = curl.output().partition("\n")
            assert (said, len(body)) == (client, size), (said, len(body), curl.tail())
    words = ["ab", "-q", "-n", 200, "-c", 20, nginx.url("/to-server/10")]
    told = world.peer(*words)
    told.finish()
    assert "Failed requests:        0" in told.output(), told.tail()
    assert not nginx.alerts(), nginx.alerts()


@test(modes=("kernel", "inprocess", "instance"))
def connections_and_datagrams_leave_with_foreign_source_addresses(world):
    serve(world, has_ipv6=True)
    server, server6 = (world.PEER_B, PORT), (world.PEER6_B, PORT)
    attempts, wanted = [], []
    for kind in ("tcp", "udp"):
        for port in (0, 5000):
            attempts += [
                ("4", kind, "10.77.0.7", port, *server),
                ("6", kind, "fd00:77::7", port, *server6),
            ]
            wanted += ["10.77.0.7 10.77.0.7", "fd00:77::7 fd00:77::7"]
        attempts.append(("4", kind, world.STACK, 0, *server))
        wanted.append(f"{world.STACK} {world.STACK}")
        attempts.append(("4", f"{kind}-plain", "10.77.0.7", 0, *server))
        wanted.append("EADDRNOTAVAIL")
    words = [",".join(str(word) for word in attempt) for attempt in attempts]
    process = world.stack(*world.program("transparent.py"), *words)
    assert process.finish().splitlines() == wanted, process.tail()

"""The table of malformed requests against `slipstack serve http` and nginx."""

import re
import selectors
import socket
import time

from harness import test

from malformed import ROWS
from test_serve import ALONE
from test_serve_http import PORT, http

# Longest time for an answer, and for the end of a connection after it.
SECONDS = 1.0


def answers(connect):
    """The results of all rows, run in parallel."""
    selector, got, ends = selectors.DefaultSelector(), {}, {}
    for name, (request, *_) in ROWS.items():
        sock = connect()
        got[name] = b""
        sock.sendall(request)
        sock.setblocking(False)
        selector.register(sock, selectors.EVENT_READ, name)
    end_at = time.monotonic() + SECONDS
    while (left := end_at - time.monotonic()) > 0 and len(ends) < len(ROWS):
        for key, _ in selector.select(left):
            name = key.data
            try:
                piece = key.fileobj.recv(65536)
            except ConnectionResetError:
                piece = b""
            got[name] += piece
            if not piece:
                ends[name] = True
                selector.unregister(key.fileobj)
                key.fileobj.close()
    for key in list(selector.get_map().values()):
        key.fileobj.close()
    codes = {
        name: re.findall(r"HTTP/1\.[01] (\d{3}) ", text.decode("latin1"))
        for name, text in got.items()
    }
    return {name: " ".join([*codes[name], "ends" if name in ends else "stays"]) for name in ROWS}


@test(modes=ALONE)
def malformed_requests_are_refused_as_nginx_does_or_more_strictly(world):
    root = http(world)
    nginx = world.folder / "nginx.conf"
    nginx.write_text(
        "daemon off; master_process off; user root; error_log stderr; pid"
        f" {world.folder}/nginx.pid; events {{ worker_connections 1000; }}\nhttp {{ access_log off;"
        f" server {{ listen {world.PEER}:8080; root {root}; }} }}\n"
    )
    world.peer("nginx", "-e", "stderr", "-c", nginx)
    world.wait_port(8080, address=world.PEER)
    ours = answers(lambda: world.connect(PORT))
    with world.peer_ns.inside():
        theirs = answers(lambda: socket.create_connection((world.PEER, 8080), timeout=10))
    wrong = []
    for name, (_, ours_wanted, theirs_wanted) in ROWS.items():
        if ours[name] != ours_wanted:
            wrong.append(f"{name}: {ours[name]}, not {ours_wanted}")
        if theirs[name] != theirs_wanted:
            wrong.append(f"{name}: nginx answers {theirs[name]}, not {theirs_wanted}")
    assert len(ROWS) >= 120 and not wrong, "\n".join(wrong)

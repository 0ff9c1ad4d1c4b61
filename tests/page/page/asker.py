"""A closed loop over several connections in one thread: `asker.py memcached ADDRESS PORT
CONNECTIONS SECONDS` prints calls a second."""

import selectors
import socket
import sys
import time

ASKED = {"memcached": (b"get k\r\n", b"END\r\n"), "echo": (b"x" * 64, b"x" * 64)}


def main():
    kind, address, port, connections, seconds = sys.argv[1:6]
    asked, answered = ASKED[kind]
    selector = selectors.DefaultSelector()
    for _ in range(int(connections)):
        sock = socket.create_connection((address, int(port)), timeout=10)
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.send(asked)
        selector.register(sock, selectors.EVENT_READ)
    count, start = 0, time.monotonic()
    while time.monotonic() < start + float(seconds):
        for key, _ in selector.select(5):
            got = key.fileobj.recv(65536)
            assert got.endswith(answered[-5:]), got[:80]
            key.fileobj.send(asked)
            count += 1
    print(count / (time.monotonic() - start))


main()

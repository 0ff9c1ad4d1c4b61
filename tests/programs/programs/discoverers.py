"""Connections with each treatment of the path's MTU. Usage: discoverers.py PORT

Listens with IP_MTU_DISCOVER 0 to 5 on PORT to PORT + 5. A line of a connection: `get` for the
option's value, `set N` to set it, `call ADDRESS PORT N` to connect with it and send 4,000 bytes.
Each is answered with 4,000 bytes, the answer first in a line of its own."""

import selectors
import socket
import sys

IP_MTU_DISCOVER = 10
MORE = b"x" * 3999 + b"\n"

port = int(sys.argv[1])
selector = selectors.DefaultSelector()
for mode in range(6):
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.setsockopt(socket.IPPROTO_IP, IP_MTU_DISCOVER, mode)
    listener.bind(("0.0.0.0", port + mode))
    listener.listen()
    selector.register(listener, selectors.EVENT_READ)


def call(address, where, mode):
    with socket.socket() as sock:
        sock.setsockopt(socket.IPPROTO_IP, IP_MTU_DISCOVER, mode)
        sock.connect((address, where))
        sock.sendall(MORE)
        sock.recv(1)
        return sock.getsockopt(socket.IPPROTO_IP, IP_MTU_DISCOVER)


def answer(sock):
    line = sock.recv(100).split()
    if not line:
        selector.unregister(sock)
        sock.close()
        return
    if line[0] == b"set":
        sock.setsockopt(socket.IPPROTO_IP, IP_MTU_DISCOVER, int(line[1]))
    if line[0] == b"call":
        value = call(line[1].decode(), int(line[2]), int(line[3]))
    else:
        value = sock.getsockopt(socket.IPPROTO_IP, IP_MTU_DISCOVER)
    sock.sendall(b"%d\n" % value + MORE)


while True:
    for key, _ in selector.select():
        if key.fileobj.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            accepted, _ = key.fileobj.accept()
            selector.register(accepted, selectors.EVENT_READ)
        else:
            answer(key.fileobj)

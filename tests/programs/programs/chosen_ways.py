"""Asks a server what address it is seen from, by sockets that choose their way: by mark, table or device. Then serves at
one device alone."""

import socket
import sys

SO_SETFIB = 0x1014
SERVER, SERVER6, PORT = sys.argv[1], sys.argv[2], int(sys.argv[3])

WAYS = {
    "plain": [],
    "mark": [(socket.SO_MARK, 20)],
    "table": [(SO_SETFIB, 30)],
    "device": [(socket.SO_BINDTODEVICE, b"eth1.20\0")],
    "released": [(socket.SO_BINDTODEVICE, b"eth1.20\0"), (socket.SO_BINDTODEVICE, b"\0")],
}


def ask(kind, family, options):
    with socket.socket(family, kind) as client:
        client.settimeout(10)
        for name, value in options:
            client.setsockopt(socket.SOL_SOCKET, name, value)
        client.connect((SERVER6 if family == socket.AF_INET6 else SERVER, PORT))
        client.sendall(b"who\n")
        return client.recv(100).decode().strip().removeprefix("::ffff:")


for name, options in WAYS.items():
    seen = [ask(kind, family, options) for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM) for family in (socket.AF_INET, socket.AF_INET6)]
    print(name, *seen)

with socket.socket() as listener:
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"eth1.20")
    listener.bind(("", 8001))
    listener.listen()
    print("listening")
    accepted, peer = listener.accept()
    print("accepted at", accepted.getsockname()[0])

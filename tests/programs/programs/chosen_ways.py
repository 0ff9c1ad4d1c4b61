"""Asks a server what address it is seen from, by sockets that choose their way: by mark, table or
device. Then serves at one device alone."""

import fcntl
import socket
import struct
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
    seen = [
        ask(kind, family, options)
        for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM)
        for family in (socket.AF_INET, socket.AF_INET6)
    ]
    print(name, *seen)


def ask_marked(family):
    """One datagram has its own mark; the next one has none."""
    with socket.socket(family, socket.SOCK_DGRAM) as client:
        client.settimeout(10)
        to = (SERVER6 if family == socket.AF_INET6 else SERVER, PORT)
        mark = (socket.SOL_SOCKET, socket.SO_MARK, struct.pack("=I", 20))
        seen = []
        for control in ([mark], []):
            client.sendmsg([b"who\n"], control, 0, to)
            seen.append(client.recv(100).decode().strip().removeprefix("::ffff:"))
        return seen


print("message", *ask_marked(socket.AF_INET), *ask_marked(socket.AF_INET6))

# The kernel has no such interface.
index = socket.if_nametoindex("eth1.20")
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asks:
    by_request = struct.unpack(
        "16sI", fcntl.ioctl(asks, 0x8933, struct.pack("16sI", b"eth1.20", 0)).ljust(20, b"\0")[:20]
    )[1]
assert by_request == index, (by_request, index)
print("named", socket.if_indextoname(index))

with socket.socket() as listener:
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"eth1.20")
    listener.bind(("", 8001))
    listener.listen()
    print("listening")
    accepted, peer = listener.accept()
    print("accepted at", accepted.getsockname()[0])

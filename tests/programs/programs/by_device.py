"""Serves one port by TCP and UDP on sockets that are bound to devices: each answers with its
device.

by_device.py PORT DEVICE... ("any": bound to none)"""

import select
import socket
import sys

PORT = int(sys.argv[1])
ready = {}
for device in sys.argv[2:]:
    for kind in socket.SOCK_STREAM, socket.SOCK_DGRAM:
        one = socket.socket(socket.AF_INET, kind)
        if device != "any":
            one.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, device.encode())
        if kind == socket.SOCK_STREAM:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        one.bind(("0.0.0.0", PORT))
        if kind == socket.SOCK_STREAM:
            one.listen()
        ready[one.fileno()] = one, device.encode()
poll = select.poll()
for number in ready:
    poll.register(number, select.POLLIN)
print("ready", flush=True)
while True:
    for number, _ in poll.poll():
        one, name = ready[number]
        if one.type == socket.SOCK_DGRAM:
            _, sender = one.recvfrom(100)
            one.sendto(name, sender)
        else:
            accepted, _ = one.accept()
            accepted.sendall(name)
            accepted.close()

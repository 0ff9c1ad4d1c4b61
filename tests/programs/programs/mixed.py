"""Every kind of kernel descriptor beside TCP sockets in one epoll set. Usage: mixed.py PORT
Answers each connection's line with the descriptors that were ready."""

import ctypes
import os
import select
import signal
import socket
import struct
import sys

LIBC = ctypes.CDLL(None, use_errno=True)


def timerfd(interval_ms):
    fd = LIBC.timerfd_create(1, os.O_NONBLOCK)
    spec = struct.pack("qqqq", 0, interval_ms * 1_000_000, 0, interval_ms * 1_000_000)
    assert LIBC.timerfd_settime(fd, 0, spec, None) == 0
    return fd


def signalfd(number):
    signal.pthread_sigmask(signal.SIG_BLOCK, {number})
    mask = struct.pack("Q", 1 << (number - 1)) + bytes(120)
    fd = LIBC.signalfd(-1, mask, os.O_NONBLOCK)
    assert fd >= 0
    return fd


listener = socket.create_server(("0.0.0.0", int(sys.argv[1])))
local = socket.create_server(("127.0.0.1", 0))
client = socket.create_connection(local.getsockname())
accepted, _ = local.accept()
pipe_read, pipe_write = os.pipe()
event = os.eventfd(0)
unix = socket.socketpair()
epoll = select.epoll()
names = {
    timerfd(50): "timerfd",
    signalfd(signal.SIGUSR1): "signalfd",
    event: "eventfd",
    pipe_read: "pipe",
    unix[0].fileno(): "unix",
    accepted.fileno(): "loopback",
}
for fd in names:
    epoll.register(fd, select.EPOLLIN)
inner = select.epoll()
inner_read, inner_write = os.pipe()
inner.register(inner_read, select.EPOLLIN)
names[inner.fileno()] = "nested"
epoll.register(inner.fileno(), select.EPOLLIN)
epoll.register(listener.fileno(), select.EPOLLIN)

POKES = {
    "timerfd": lambda: None,
    "signalfd": lambda: os.kill(os.getpid(), signal.SIGUSR1),
    "eventfd": lambda: os.write(event, struct.pack("Q", 1)),
    "pipe": lambda: os.write(pipe_write, b"x"),
    "unix": lambda: unix[1].send(b"x"),
    "loopback": lambda: client.send(b"x"),
    "nested": lambda: os.write(inner_write, b"x"),
}
SIZES = {"timerfd": 8, "signalfd": 128, "eventfd": 8, "pipe": 1, "unix": 1, "loopback": 1}
waiting = {}
connections = {}


def drain(name, fd):
    os.read(inner_read if name == "nested" else fd, SIZES.get(name, 1))


while True:
    for fd, _ in epoll.poll(5):
        if fd == listener.fileno():
            connection, _ = listener.accept()
            connections[connection.fileno()] = connection
            epoll.register(connection.fileno(), select.EPOLLIN)
        elif fd in names:
            name = names[fd]
            drain(name, fd)
            for asker in waiting.pop(name, []):
                asker.sendall(f"{name}\n".encode())
        else:
            connection = connections[fd]
            request = connection.recv(100).decode().strip()
            if not request:
                epoll.unregister(fd)
                connections.pop(fd).close()
            else:
                waiting.setdefault(request, []).append(connection)
                POKES[request]()

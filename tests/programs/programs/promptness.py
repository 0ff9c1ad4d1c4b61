"""Answers requests within 2 ms, and waits again at once; computes for 30 ms after its answers if
a request was `slow`. Each answer has the wall-clock time before it was sent.
Usage: promptness.py PORT"""

import select
import socket
import sys
import time

listener = socket.create_server(("0.0.0.0", int(sys.argv[1])))
poll = select.epoll()
poll.register(listener, select.EPOLLIN)
clients = {}


def answer(fd):
    asked = clients[fd].recv(100)
    if not asked:
        clients.pop(fd).close()
        return False
    clients[fd].send(f"{time.time():.9f}\n".encode())
    return asked == b"slow\n"


while True:
    poll.poll()
    time.sleep(0.002)
    is_slow = False
    for fd, _ in poll.poll(0):
        if fd == listener.fileno():
            sock, _ = listener.accept()
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            clients[sock.fileno()] = sock
            poll.register(sock, select.EPOLLIN)
        else:
            is_slow |= answer(fd)
    end = time.monotonic() + 0.03
    while is_slow and time.monotonic() < end:
        pass

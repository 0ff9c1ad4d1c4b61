"""Answers each line that asks `quick` and waits again at once; computes for 30 ms after it has answered
`slow`. Each answer holds the clock of the moment before it was sent. Usage: habits.py PORT"""

import select
import socket
import sys
import time

listener = socket.create_server(("0.0.0.0", int(sys.argv[1])))
poll = select.epoll()
poll.register(listener, select.EPOLLIN)
clients = {}
while True:
    for fd, _ in poll.poll():
        if fd == listener.fileno():
            sock, _ = listener.accept()
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            clients[sock.fileno()] = sock
            poll.register(sock, select.EPOLLIN)
            continue
        asked = clients[fd].recv(100)
        if not asked:
            clients.pop(fd).close()
            continue
        clients[fd].send(f"{time.clock_gettime(time.CLOCK_MONOTONIC):.9f}\n".encode())
        if asked == b"slow\n":
            end = time.monotonic() + 0.03
            while time.monotonic() < end:
                pass

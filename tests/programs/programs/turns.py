"""Processes that take turns at accepting, as Apache's prefork does with two addresses: who waits for his turn waits in
no call on a socket. Usage: turns.py poll|epoll"""

import os
import select
import signal
import socket
import sys

WORKERS = 4


def work(listeners, taken, given):
    poll = select.poll() if sys.argv[1] == "poll" else select.epoll()
    for listener in listeners:
        poll.register(listener, select.POLLIN)
    by_number = {listener.fileno(): listener for listener in listeners}
    while True:
        os.read(taken, 1)
        connection = None
        while connection is None:
            for number, _ in poll.poll():
                try:
                    connection, _ = by_number[number].accept()
                    break
                except BlockingIOError:
                    pass
        os.write(given, b"t")
        with connection:
            connection.setblocking(True)
            line = connection.recv(100)
            if line:
                connection.sendall(b"%d %s" % (os.getpid(), line))


def main():
    listeners = [socket.create_server(("0.0.0.0", port)) for port in (9000, 9001)]
    for listener in listeners:
        listener.setblocking(False)
    taken, given = os.pipe()
    os.write(given, b"t")
    children = []
    for _ in range(WORKERS):
        child = os.fork()
        if not child:
            work(listeners, taken, given)
        children.append(child)

    def end(*_):
        for child in children:
            os.kill(child, signal.SIGTERM)
        sys.exit(0)

    signal.signal(signal.SIGTERM, end)
    while True:
        signal.pause()


main()

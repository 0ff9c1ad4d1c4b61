"""Processes that take turns at accepting, as Apache's prefork does with two addresses: a process
that waits for its turn is in no socket call. Usage: turns.py poll|epoll|accept (of the first
address alone)"""

import os
import select
import signal
import socket
import sys

WORKERS = 4


def accept_first(listeners):
    listeners[0].setblocking(True)
    while True:
        yield listeners[0].accept()[0]


def poll_all(listeners):
    poll = select.poll() if sys.argv[1] == "poll" else select.epoll()
    for listener in listeners:
        poll.register(listener, select.POLLIN)
    by_number = {listener.fileno(): listener for listener in listeners}
    while True:
        for number, _ in poll.poll():
            try:
                connection, _ = by_number[number].accept()
            except BlockingIOError:
                continue
            yield connection
            break


def work(listeners, taken, given):
    accepting = (accept_first if sys.argv[1] == "accept" else poll_all)(listeners)
    while True:
        os.read(taken, 1)
        connection = next(accepting)
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

"""Two processes whose epoll sets have one inherited listener. A process with a connection that
says `stay` does not return to its set until the connection ends. Usage: elsewhere.py
read|compute|lock"""

import os
import select
import signal
import socket
import sys
import threading


def stay(connection, how):
    if how == "read":
        connection.recv(1)
    elif how == "compute":
        ended = False
        while not ended:
            sum(range(100_000))
            ended = bool(select.select([connection], [], [], 0)[0])
    else:
        # The thread that waits for the listener waits for another one, which reads.
        reader = threading.Thread(target=connection.recv, args=(1,))
        reader.start()
        reader.join()


def work(listener, how):
    epoll = select.epoll()
    epoll.register(listener, select.EPOLLIN)
    while True:
        epoll.poll()
        try:
            connection, _ = listener.accept()
        except BlockingIOError:
            continue
        with connection:
            connection.setblocking(True)
            line = connection.recv(100)
            connection.sendall(b"%d %s" % (os.getpid(), line))
            if line == b"stay":
                stay(connection, how)


def main():
    listener = socket.create_server(("0.0.0.0", 9000))
    listener.setblocking(False)
    children = []
    for _ in range(2):
        child = os.fork()
        if not child:
            work(listener, sys.argv[1])
        children.append(child)

    def end(*_):
        for child in children:
            os.kill(child, signal.SIGTERM)
        sys.exit(0)

    signal.signal(signal.SIGTERM, end)
    while True:
        signal.pause()


main()

"""Servers of many: `crowded.py PORT forks`: one loop echoes, and forks a child that ends at once
for each line "fork"; `crowded.py PORT threads COUNT`: so many threads accept and echo; `crowded.py
PORT children`: a child for each connection tells its number and echoes."""

import os
import selectors
import signal
import socket
import sys
import threading

PORT, HOW = int(sys.argv[1]), sys.argv[2]


def forks(server):
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    chosen = selectors.DefaultSelector()
    chosen.register(server, selectors.EVENT_READ)
    while True:
        for key, _ in chosen.select():
            if key.fileobj is server:
                sock, _ = server.accept()
                chosen.register(sock, selectors.EVENT_READ)
            elif data := key.fileobj.recv(4096):
                if data == b"fork\n" and os.fork() == 0:
                    os._exit(0)
                key.fileobj.sendall(data)
            else:
                chosen.unregister(key.fileobj)
                key.fileobj.close()


def echo(sock):
    with sock:
        while data := sock.recv(4096):
            sock.sendall(data)


def threads(server):
    def serve():
        while True:
            echo(server.accept()[0])

    threading.stack_size(128 << 10)
    for _ in range(int(sys.argv[3])):
        threading.Thread(target=serve).start()
    signal.pause()


def children(server):
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        sock, _ = server.accept()
        if os.fork() == 0:
            server.close()
            sock.sendall(b"%d\n" % os.getpid())
            echo(sock)
            os._exit(0)
        sock.close()


with socket.create_server(("0.0.0.0", PORT), backlog=512) as listener:
    {"forks": forks, "threads": threads, "children": children}[HOW](listener)

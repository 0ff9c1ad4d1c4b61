"""The first worker sees what comes to its listener and accepts nothing; when it has been killed the
second one serves, with a second of loading before. Usage: unaccepted.py PORT"""

import os
import select
import socket
import sys
import threading
import time

listener = socket.create_server(("0.0.0.0", int(sys.argv[1])), backlog=64)


def worker(body):
    pid = os.fork()
    if pid == 0:
        body()
        os._exit(0)
    os.waitpid(pid, 0)


def watch():
    print(os.getpid(), flush=True)
    select.select([listener], [], [])
    time.sleep(60)


def serve():
    time.sleep(1)
    while True:
        threading.Thread(target=echo, args=(listener.accept()[0],), daemon=True).start()


def echo(sock):
    with sock, sock.makefile("rwb") as stream:
        for line in stream:
            stream.write(line)
            stream.flush()


worker(watch)
worker(serve)

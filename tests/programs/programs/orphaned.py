"""Echoes, each connection by a child whose parent accepts nothing else and is killed. Usage:
orphaned.py ADDRESS PORT SECONDS

The parent is killed at once, or at any instant within SECONDS. The child begins to read now or a
little later."""

import os
import random
import signal
import socket
import sys
import time


def serve(sock):
    time.sleep(random.choice((0, 0.01)))
    while data := sock.recv(4096):
        sock.sendall(data)


def make(server, chance, seconds):
    sock, _ = server.accept()
    # A handshake with it would end with it.
    server.close()
    if os.fork() == 0:
        serve(sock)
        os._exit(0)
    sock.close()
    time.sleep(chance.choice((0, chance.uniform(0, seconds))))
    os.kill(os.getpid(), signal.SIGKILL)


def main():
    server = socket.create_server((sys.argv[1], int(sys.argv[2])), backlog=200)
    chance = random.Random()
    while True:
        chance.random()
        maker = os.fork()
        if maker == 0:
            make(server, chance, float(sys.argv[3]))
        os.waitpid(maker, 0)


if __name__ == "__main__":
    main()

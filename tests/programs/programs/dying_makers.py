"""Echoes, a child for each connection; whoever accepts is killed again and again, while connections
go to the children. Usage: dying_makers.py ADDRESS PORT SECONDS

After SECONDS nobody is killed any more, which it says."""

import os
import random
import signal
import socket
import sys
import time


def talk(sock):
    while data := sock.recv(4096):
        sock.sendall(data)


def make(server):
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        sock, _ = server.accept()
        if os.fork() == 0:
            server.close()
            talk(sock)
            os._exit(0)
        sock.close()


def main():
    server = socket.create_server((sys.argv[1], int(sys.argv[2])), backlog=200)
    end = time.monotonic() + float(sys.argv[3])
    print("begins", flush=True)
    while True:
        maker = os.fork()
        if maker == 0:
            make(server)
        if time.monotonic() > end:
            print("nobody is killed", flush=True)
            os.waitpid(maker, 0)
        time.sleep(random.uniform(0.03, 0.4))
        os.kill(maker, signal.SIGKILL)
        os.waitpid(maker, 0)


if __name__ == "__main__":
    main()

"""Echoes, a child for each connection, and moves connections about. Usage: moving.py ADDRESS PORT

The first byte says what becomes of a connection: `k` its child is killed on the way, `f` its child
forks and leaves it to the new one, `c` its child sends it to itself in circles, all else stays."""

import os
import random
import signal
import socket
import sys


def in_a_circle(sock):
    near, far = socket.socketpair()
    with near, far:
        socket.send_fds(near, [b"x"], [sock.fileno()])
        sock.close()
        return socket.socket(fileno=socket.recv_fds(far, 1, 1)[1][0])


def talk(sock, how):
    death = random.randint(8, 24)
    turn = 0
    while data := sock.recv(4096):
        sock.sendall(data)
        turn += 1
        if how == b"k" and turn == death:
            os.kill(os.getpid(), signal.SIGKILL)
        if how == b"f" and turn == 5 and os.fork() != 0:
            return
        if how == b"c" and turn % 7 == 0:
            sock = in_a_circle(sock)


def main():
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    server = socket.create_server((sys.argv[1], int(sys.argv[2])), backlog=200)
    while True:
        sock, _ = server.accept()
        if os.fork() == 0:
            server.close()
            how = sock.recv(1)
            sock.sendall(how)
            talk(sock, how)
            os._exit(0)
        sock.close()


if __name__ == "__main__":
    main()

"""Answers each connection by a child that is made by the system call itself, not by libc's fork,
and that changes its group, in which libc involves each thread. Usage: clones.py PORT"""

import ctypes
import os
import platform
import signal
import socket
import sys

CLONE = {"x86_64": 56, "aarch64": 220}[platform.machine()]


def main():
    libc = ctypes.CDLL(None)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    server = socket.create_server(("", int(sys.argv[1])), backlog=100)
    while True:
        sock, _ = server.accept()
        if libc.syscall(CLONE, int(signal.SIGCHLD), 0, 0, 0, 0) == 0:
            os.setgid(os.getgid())
            sock.sendall(sock.recv(100))
            os._exit(0)
        sock.close()


if __name__ == "__main__":
    main()

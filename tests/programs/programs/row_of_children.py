"""Accepts COUNT connections, with a child for each that reads from it at once. Usage:
row_of_children.py ADDRESS PORT COUNT"""

import os
import signal
import socket
import sys

server = socket.create_server((sys.argv[1], int(sys.argv[2])), backlog=200)
for _ in range(int(sys.argv[3])):
    sock, _ = server.accept()
    if os.fork() == 0:
        server.close()
        while data := sock.recv(100):
            sock.sendall(data)
        os._exit(0)
    sock.close()
print("all have begun", flush=True)
signal.pause()

"""Accepts, says `ready`, sleeps without a call to the network, then reads and counts.
Usage: away.py PORT SECONDS"""

import socket
import sys
import time

listener = socket.create_server(("0.0.0.0", int(sys.argv[1])))
while True:
    sock, _ = listener.accept()
    with sock:
        if sock.recv(2) != b"go":
            continue
        sock.sendall(b"ready")
        time.sleep(float(sys.argv[2]))
        total = 0
        while data := sock.recv(65536):
            total += len(data)
        sock.sendall(f"{total}\n".encode())

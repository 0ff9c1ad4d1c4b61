"""Sends the clock and then computes, so that no further call pushes the data. Usage: bursts.py
PORT"""

import socket
import sys
import time

listener = socket.create_server(("0.0.0.0", int(sys.argv[1])))
while True:
    sock, _ = listener.accept()
    with sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if not sock.recv(10):
            continue
        for _ in range(200):
            sock.sendall(f"{time.clock_gettime(time.CLOCK_REALTIME):.9f}\n".encode())
            end = time.monotonic() + 0.03
            while time.monotonic() < end:
                pass

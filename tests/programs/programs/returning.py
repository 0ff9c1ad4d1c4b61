"""Connects again whenever its connection ends, and prints how many descriptors it has. Usage:
returning.py ADDRESS PORT"""

import os
import socket
import sys
import time

address, port = sys.argv[1], int(sys.argv[2])
while True:
    try:
        with socket.create_connection((address, port), timeout=5) as sock:
            sock.sendall(b"%d\n" % len(os.listdir("/proc/self/fd")))
            sock.settimeout(None)
            sock.recv(1)
    except OSError:
        time.sleep(0.05)

"""A child process for every connection. Usage: forking.py PORT"""

import os
import signal
import socket
import sys

signal.signal(signal.SIGCHLD, signal.SIG_IGN)
listener = socket.create_server(("0.0.0.0", int(sys.argv[1])))
while True:
    sock, _ = listener.accept()
    if os.fork() == 0:
        listener.close()
        with sock, sock.makefile("rw") as lines:
            for line in lines:
                lines.write(f"child says {line}")
                lines.flush()
        os._exit(0)
    sock.close()

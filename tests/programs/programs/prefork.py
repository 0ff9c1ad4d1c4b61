"""Two processes that accept on one socket and serve one connection after the other."""

import os
import signal
import socket
import sys

listener = socket.create_server(("0.0.0.0", 9000))
child = os.fork()
if child:

    def end(*_):
        os.kill(child, signal.SIGTERM)
        sys.exit(0)

    signal.signal(signal.SIGTERM, end)
while True:
    connection, _ = listener.accept()
    with connection:
        line = connection.recv(100)
        if line:
            connection.sendall(b"%d %s" % (os.getpid(), line))

"""closes_first.py PORT: greets each client, closes, and prints when the client has closed too."""

import signal
import socket
import sys

signal.signal(signal.SIGTERM, signal.SIG_DFL)
with socket.create_server(("0.0.0.0", int(sys.argv[1]))) as listener:
    print("listens", flush=True)
    while True:
        connection, _ = listener.accept()
        connection.sendall(b"hello")
        connection.close()
        print("closed", flush=True)

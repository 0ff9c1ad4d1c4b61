"""Prints the errors with which its connections and waits end. Usage: told.py PORT PEER"""

import errno
import socket
import sys

listener = socket.create_server(("0.0.0.0", int(sys.argv[1])))
while True:
    sock, _ = listener.accept()
    if sock.recv(10) != b"wait":
        continue
    sock.sendall(b"waiting")
    try:
        data = sock.recv(10)
        print(f"connection: ended with {data!r}", flush=True)
    except OSError as error:
        print(f"connection: {errno.errorcode[error.errno]}", flush=True)
    try:
        socket.create_connection((sys.argv[2], 9), timeout=2)
    except OSError as error:
        print(f"new connection: {errno.errorcode.get(error.errno, error)}", flush=True)
    sys.exit(0)

"""Starts itself again with root as its real or its effective user alone, as squid does with its
workers, and serves one connection so."""

import os
import sys

AGAIN = """
import os, socket, sys
print(os.getresuid(), [name for name in os.environ if "USERS" in name])
listener = socket.create_server((sys.argv[1], int(sys.argv[2])))
print("listens", flush=True)
said = b""
while not said:
    connection, _ = listener.accept()
    said = connection.recv(100)
    connection.sendall(said)
    connection.close()
os.setresuid(0, 0, 0)
print(os.getresuid(), flush=True)
"""

address, port, which = sys.argv[1:]
os.setresuid(*((0, 33, 0) if which == "effective" else (33, 0, 0)))
try:
    os.execv("/proc/self/mem", ["mem"])
except OSError as error:
    print(error.errno, os.getresuid(), flush=True)
os.execv(sys.executable, [sys.executable, "-c", AGAIN, address, port])

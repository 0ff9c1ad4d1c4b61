"""A server whose child reads a connection slowly, so that its pair is full when the peer resets
it: `reads_slowly.py PORT`. The child says how many bytes it has read, and how that has ended."""

import os
import select
import socket
import sys
import time

listener = socket.create_server(("0.0.0.0", int(sys.argv[1])))
print("listening", flush=True)
conn, _ = listener.accept()
if os.fork() == 0:
    listener.close()
    conn.setblocking(False)
    watcher = select.poll()
    watcher.register(conn, select.POLLIN)
    total = 0
    while True:
        watcher.poll()
        time.sleep(0.002 if total else 1)
        try:
            got = len(conn.recv(4096))
        except ConnectionResetError:
            print(total, "reset", flush=True)
            break
        total += got
        if got == 0:
            print(total, "end", flush=True)
            break
    os._exit(0)
# With a copy of its own, so that the connection does not move.
os.wait()
conn.close()

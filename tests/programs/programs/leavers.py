"""Two workers share a listener and accept nothing until both end; the next process accepts all
connections.

leavers.py ADDRESS PORT CONNECTIONS"""

import os
import select
import socket
import sys

address, port, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
server = socket.create_server((address, port), backlog=256)
quiet, told = os.pipe()
workers = []
for _ in range(2):
    workers.append(os.fork())
    if workers[-1] == 0:
        os.close(told)
        # One wait, with which this process listens on the stack too.
        select.select([server], [], [], 5)
        select.select([quiet], [], [], 5)
        os._exit(0)
print("listening", flush=True)
sys.stdin.readline()
os.close(told)
for pid in workers:
    os.waitpid(pid, 0)
for _ in range(count):
    sock, _ = server.accept()
    with sock:
        sock.sendall(sock.recv(100))

"""Two processes share a listener, and neither accepts: one sleeps, the other waits until it is told
to end. Connections to either are accepted by the sleeper at the end.

sleeper.py ADDRESS PORT CONNECTIONS"""

import os
import select
import socket
import sys
import time

address, port, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
server = socket.create_server((address, port), backlog=256)
quiet, told = os.pipe()
if os.fork() == 0:
    os.close(told)
    while not select.select([server, quiet], [], [], 5)[0].count(quiet):
        time.sleep(0.01)
    server.close()
    os._exit(0)
os.close(quiet)
# Now this process listens on the stack too.
select.select([server], [], [], 0.3)
print("sleeping", flush=True)
time.sleep(0.5)
os.close(told)
time.sleep(0.4)
for _ in range(count):
    sock, _ = server.accept()
    with sock:
        sock.sendall(sock.recv(100))
os.wait()

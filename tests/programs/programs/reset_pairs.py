"""A server whose child has connections that the peer resets, and lets go of them without a look.

`reset_pairs.py PORT COUNT CUE`: the child reads a byte of each connection and says so. Once there
is a file CUE it closes one half and puts other files under the numbers of the others, and stays.
Then the parent closes its own copies and says how many sockets it has that it had not before."""

import os
import socket
import sys
import time

port, count = int(sys.argv[1]), int(sys.argv[2])


def sockets():
    links = (f"/proc/self/fd/{number}" for number in os.listdir("/proc/self/fd"))
    return sum(os.path.islink(link) and "socket:" in os.readlink(link) for link in links)


listener = socket.create_server(("0.0.0.0", port))
print("listening", flush=True)
conns = [listener.accept()[0] for _ in range(count)]
before = sockets() - count
rest, done = os.pipe()
stays, parents = os.pipe()
if os.fork() == 0:
    os.close(rest)
    os.close(parents)
    for conn in conns:
        conn.recv(1)
    print("all read", flush=True)
    while not os.path.exists(sys.argv[3]):
        time.sleep(0.02)
    null = os.open("/dev/null", os.O_RDWR)
    for conn in conns[::2]:
        conn.close()
    for conn in conns[1::2]:
        os.dup2(null, conn.fileno())
    os.write(done, b"x")
    # Until the parent ends.
    os.read(stays, 1)
    os._exit(0)
os.read(rest, 1)
for conn in conns:
    conn.close()
for _ in range(50):
    time.sleep(0.05)
    more = sockets() - before
    if more <= 4:
        break
print("more", more, flush=True)
time.sleep(60)

"""Accepts, prints `ready`, makes no network call for a time, then reads and counts.
Usage: away.py PORT SECONDS [sleep|compute [COMMAND…]]; the command runs meanwhile in the same
session and so in the same share of the processor."""

import socket
import subprocess
import sys
import time


def be_away(seconds, how):
    if how == "sleep":
        return time.sleep(seconds)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        sum(range(20000))


if len(sys.argv) > 4:
    subprocess.Popen(sys.argv[4:])
listener = socket.create_server(("0.0.0.0", int(sys.argv[1])))
while True:
    sock, _ = listener.accept()
    with sock:
        if sock.recv(2) != b"go":
            continue
        sock.sendall(b"ready")
        be_away(float(sys.argv[2]), sys.argv[3] if len(sys.argv) > 3 else "sleep")
        total = 0
        while data := sock.recv(65536):
            total += len(data)
        sock.sendall(f"{total}\n".encode())

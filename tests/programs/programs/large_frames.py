"""Sends many bytes from one program to another, and prints a digest at either end.
Usage: large_frames.py take PORT | large_frames.py give ADDRESS PORT"""

import hashlib
import random
import socket
import sys

TOTAL = 24 << 20
PIECE = 64 << 10

digest = hashlib.sha256()
if sys.argv[1] == "take":
    listener = socket.create_server(
        ("::", int(sys.argv[2])), family=socket.AF_INET6, dualstack_ipv6=True
    )
    while True:
        sock, _ = listener.accept()
        digest = hashlib.sha256()
        while data := sock.recv(PIECE):
            digest.update(data)
        sock.sendall(digest.hexdigest().encode())
        sock.close()
else:
    sock = socket.create_connection((sys.argv[2], int(sys.argv[3])))
    block = random.Random(7).randbytes(PIECE + 1)
    for at in range(TOTAL // PIECE):
        piece = block[at % 97 :] + block[: at % 97]
        digest.update(piece)
        sock.sendall(piece)
    sock.shutdown(socket.SHUT_WR)
    print(digest.hexdigest(), sock.makefile("rb").read().decode())

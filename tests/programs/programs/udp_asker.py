"""Requests datagrams of the given lengths from udp_blob.py and prints which arrived whole.
Usage: udp_asker.py HOST PORT LENGTH…"""

import hashlib
import socket
import sys

host, port = sys.argv[1], int(sys.argv[2])
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
    client.settimeout(2)
    for length in map(int, sys.argv[3:]):
        asked = b"%d" % length
        client.sendto(asked, (host, port))
        try:
            got = client.recv(65536)
        except TimeoutError:
            got = b""
        print(length, got == hashlib.shake_256(asked).digest(length), flush=True)

"""Connects from given addresses to a server that sends each peer its address: `SOURCE
DESTINATION PORT` triples."""

import socket
import sys

words = sys.argv[1:]
for source, destination, port in zip(words[::3], words[1::3], words[2::3]):
    with socket.socket(socket.AF_INET6 if ":" in source else socket.AF_INET) as client:
        client.settimeout(10)
        client.bind((source, 0))
        client.connect((destination, int(port)))
        client.sendall(b"who\n")
        told = client.makefile().readline().strip().removeprefix("::ffff:")
        print(destination, "ok" if told == source else f"saw {told}")

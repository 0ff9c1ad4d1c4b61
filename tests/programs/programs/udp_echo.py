"""Answers datagrams. Usage: udp_echo.py PORT"""

import socket
import sys

sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
sock.bind(("0.0.0.0", int(sys.argv[1])))
while True:
    data, sender = sock.recvfrom(65536)
    sock.sendto(b"answer to " + data, sender)

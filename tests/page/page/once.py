"""The program that inetd starts for a datagram: reads it from its standard input and answers."""

import socket

sock = socket.socket(fileno=0)
sock.settimeout(5)
data, sender = sock.recvfrom(65_535)
sock.sendto(data, sender)

"""Sockets on both sides. Usage: places.py PEER PORT"""

import socket
import sys
import time

peer, port = sys.argv[1], int(sys.argv[2])
both = socket.create_server(("0.0.0.0", port))
kernel = socket.create_server(("127.0.0.1", port + 1))
stack = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
stack.connect((peer, port + 2))
udp_local = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
udp_local.bind(("127.0.0.1", port + 3))
stack_tcp = socket.socket()
stack_tcp.bind(("10.77.0.2", port + 2))
stack_tcp.listen()
print("ready", flush=True)
while True:
    time.sleep(1)

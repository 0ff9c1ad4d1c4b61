"""Many connected UDP sockets at once, opened and closed in turn. Usage: udp_clients.py ADDRESS PORT

Each sends one query and must get its own answer."""

import collections
import random
import socket
import sys

ROUNDS = 600
OPEN_MAX = 60

server = (sys.argv[1], int(sys.argv[2]))
random.seed(1)
clients = collections.deque()
for number in range(ROUNDS):
    client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    client.settimeout(5)
    client.connect(server)
    client.send(str(number).encode())
    clients.append((number, client))
    if len(clients) == OPEN_MAX or random.random() < 0.4:
        clients.rotate(random.randrange(len(clients)))
        asked, client = clients.popleft()
        told = client.recv(100).decode()
        assert told == f"answer to {asked}", f"who asked {asked} heard {told!r}"
        client.close()
ports = {client.getsockname()[1] for _, client in clients}
assert len(ports) == len(clients), "two sockets have one port"
print("every client heard its own answer")

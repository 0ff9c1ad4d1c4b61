"""`inheriting.py PORT COUNT`: accepts so many connections, starts programs that inherit all of them
and tell the peers of the first and of the last one, and answers on each then."""

import os
import socket
import subprocess
import sys

PORT, COUNT = int(sys.argv[1]), int(sys.argv[2])
TELLS = """
import os, socket, sys
numbers = [int(word) for word in sys.argv[1:]]
ends = [socket.socket(fileno=os.dup(number)) for number in numbers]
print(*sorted({end.getpeername()[1] for end in ends}))
"""


def told(sock):
    words = [sys.executable, "-c", TELLS, str(sock.fileno())]
    return subprocess.run(words, close_fds=False, capture_output=True, check=True).stdout


def main():
    server = socket.create_server(("0.0.0.0", PORT), backlog=1024)
    print("listens", flush=True)
    socks = []
    while len(socks) < COUNT:
        sock, _ = server.accept()
        os.set_inheritable(sock.fileno(), True)
        socks.append(sock)
    for sock in (socks[0], socks[-1]):
        assert told(sock).split() == [b"%d" % sock.getpeername()[1]]
    child = os.fork()
    if child == 0:
        os.execv("/bin/true", ["true"])
    assert os.waitpid(child, 0)[1] == 0
    for sock in socks:
        sock.sendall(sock.recv(100))
    server.close()


main()

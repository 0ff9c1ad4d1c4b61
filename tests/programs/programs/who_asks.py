"""Answers each client, by TCP or UDP, with its address, and a request for an HTTP path that has
a number with so many bytes behind it."""

import socket
import sys
import threading

port = int(sys.argv[1])


def stream(sock, peer):
    with sock:
        head = sock.recv(65536)
        answer = peer[0].removeprefix("::ffff:").encode()
        if head.startswith(b"GET /"):
            count = int(head.split()[1][1:])
            answer += b"\n" + b"x" * count
            length = len(answer)
            answer = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % length + answer
        sock.sendall(answer)


def streams():
    server = socket.create_server(("::", port), family=socket.AF_INET6, dualstack_ipv6=True)
    while True:
        threading.Thread(target=stream, args=server.accept()).start()


threading.Thread(target=streams).start()
with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as datagrams:
    datagrams.bind(("::", port))
    while True:
        _, peer = datagrams.recvfrom(65536)
        datagrams.sendto(peer[0].removeprefix("::ffff:").encode(), peer)

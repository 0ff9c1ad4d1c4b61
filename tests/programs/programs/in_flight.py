"""Connections in messages that nobody can receive: in_flight.py PORT.

The first line of a connection says how. `circle`: the connection and the receiving end go into a
message to that end, so that none of them has a number any more. `unread`: the ends of a pair are
closed while a message with the connection waits in it. `killed`: a child receives the connection,
answers a line and is killed."""

import os
import signal
import socket
import sys


def circle(sock):
    near, far = socket.socketpair()
    socket.send_fds(near, [b"x"], [sock.fileno(), far.fileno()])
    for end in (sock, near, far):
        end.close()
    # The kernel looks for circles when a socket of this kind is closed.
    for end in socket.socketpair():
        end.close()


def unread(sock):
    near, far = socket.socketpair()
    socket.send_fds(near, [b"x"], [sock.fileno()])
    for end in (sock, near, far):
        end.close()


def killed(sock):
    near, far = socket.socketpair()
    child = os.fork()
    if child == 0:
        with socket.socket(fileno=socket.recv_fds(far, 1, 1)[1][0]) as received:
            received.sendall(received.recv(100))
            os.kill(os.getpid(), signal.SIGKILL)
    socket.send_fds(near, [b"x"], [sock.fileno()])
    for end in (sock, near, far):
        end.close()
    os.waitpid(child, 0)


with socket.create_server(("0.0.0.0", int(sys.argv[1]))) as server:
    while True:
        sock, _ = server.accept()
        if how := sock.recv(100):
            sock.sendall(how)
            {b"circle\n": circle, b"unread\n": unread, b"killed\n": killed}[how](sock)
        sock.close()

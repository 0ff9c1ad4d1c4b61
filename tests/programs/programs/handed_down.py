"""A program that starts another one, which serves its sockets: handed_down.py HOW PORT.

HOW: `posix_spawn`; `stdin`: the same, with the listener as standard input; `system`: by the C
library's shell; `popen`: by Python's, without one. The sockets are a TCP listener, a UDP socket,
and a TCP socket at PORT + 1 that is only bound. The program itself waits for none of them."""

import os
import signal
import socket
import subprocess
import sys
import threading


def started(*numbers):
    """Answers two connections, one to the socket that was only bound, and a datagram."""
    listener, dgram, bound = (socket.socket(fileno=int(number)) for number in numbers)
    own = b"%d" % os.getpid()
    bound.listen()
    for sock in (listener, bound):
        connection, _ = sock.accept()
        connection.sendall(own)
        connection.close()
    data, peer = dgram.recvfrom(100)
    dgram.sendto(own + data, peer)


def main(how, port):
    listener = socket.create_server(("0.0.0.0", int(port)))
    dgram = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    bound = socket.socket()
    dgram.bind(("0.0.0.0", int(port)))
    bound.bind(("0.0.0.0", int(port) + 1))
    socks = [listener, dgram, bound]
    for sock in socks:
        sock.set_inheritable(True)
    numbers = [sock.fileno() for sock in socks]
    if how == "stdin":
        numbers[0] = 0
    words = [sys.executable, "-u", __file__, "started", *map(str, numbers)]
    if how == "posix_spawn":
        os.posix_spawn(words[0], words, os.environ)
    elif how == "stdin":
        subprocess.Popen(words, close_fds=False, stdin=listener)
    elif how == "popen":
        subprocess.Popen(words, close_fds=False)
    else:
        threading.Thread(target=os.system, args=(" ".join(words),), daemon=True).start()
    print("own", os.getpid(), flush=True)
    while True:
        signal.pause()


started(*sys.argv[2:]) if sys.argv[1] == "started" else main(*sys.argv[1:])

"""Binds UDP sockets and listens on TCP ports, all at explicit ports of the range for outgoing
connections, and waits on none of them until a signal comes. Then it prints what each has had.

    before_waits.py COUNT PORT... -- ADDRESS..."""

import signal
import socket
import sys

SECONDS = 1


def bound(kind, address, port):
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    sock = socket.socket(family, kind)
    if kind == socket.SOCK_STREAM:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.bind((address, port))
    sock.settimeout(SECONDS)
    return sock


def received(sock, count):
    try:
        return sum(sock.recv(100) == b"%d" % number for number in range(count))
    except TimeoutError:
        return "too few"


def accepted(listener):
    try:
        with listener.accept()[0] as connection:
            connection.settimeout(SECONDS)
            return connection.recv(100).decode()
    except TimeoutError:
        return "none"


def main():
    at = sys.argv.index("--")
    count, *ports = map(int, sys.argv[1:at])
    names = [(address, port) for port in ports for address in sys.argv[at + 1 :]]
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    datagrams = [bound(socket.SOCK_DGRAM, *name) for name in names]
    listeners = [bound(socket.SOCK_STREAM, *name) for name in names]
    for listener in listeners:
        listener.listen()
    print("bound", flush=True)
    signal.sigwait({signal.SIGUSR1})
    for name, sock, listener in zip(names, datagrams, listeners):
        print(*name, received(sock, count), accepted(listener), flush=True)


main()

"""Blocks in one call, and says how that ended. HOW is a call (accept, recv, send, connect), poll,
select, epoll, child (as accept, in a forked child), or who looks again and again instead: look
(recv), glance (poll). Usage: waits.py listener HOW PORT              greets whoever connects
waits.py datagrams HOW PORT             answers every datagram waits.py connection HOW ADDRESS PORT
says what its connection ends with waits.py teller ADDRESS PORT            sends datagrams and never
reads waits.py asker HOW ADDRESS PORT         says what its connected datagram socket hears"""

import contextlib
import errno
import os
import select
import signal
import socket
import sys
import time

PAUSE_S = 0.005


def wait(how, sock, to_write=False):
    """Without a timeout; a blocking call of the socket waits itself."""
    if how == "poll":
        poll = select.poll()
        poll.register(sock, select.POLLOUT if to_write else select.POLLIN)
        poll.poll()
    elif how == "select":
        select.select([] if to_write else [sock], [sock] if to_write else [], [])
    elif how == "epoll":
        with select.epoll() as poll:
            poll.register(sock, select.EPOLLOUT if to_write else select.EPOLLIN)
            poll.poll()
    elif how == "look":
        while not is_there(sock):
            time.sleep(PAUSE_S)
    elif how == "glance":
        poll = select.poll()
        poll.register(sock, select.POLLIN)
        while not poll.poll(0):
            time.sleep(PAUSE_S)


def is_there(sock):
    try:
        sock.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        return True
    except BlockingIOError:
        return False


def listener(how, port):
    with socket.create_server(("0.0.0.0", int(port))) as listening:
        if how == "child" and (child := os.fork()):
            signal.signal(signal.SIGTERM, lambda *_: os.kill(child, signal.SIGTERM))
            os.wait()
            return
        while True:
            wait(how, listening)
            sock, _ = listening.accept()
            with sock:
                sock.sendall(b"hello")


def datagrams(how, port):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind(("0.0.0.0", int(port)))
        while True:
            wait(how, sock)
            data, peer = sock.recvfrom(2000)
            sock.sendto(data, peer)


def connection(how, address, port):
    with socket.socket() as sock:
        if how != "connect":
            sock.connect((address, int(port)))
        print("waits", flush=True)
        try:
            if how == "connect":
                sock.connect((address, int(port)))
            elif how == "send":
                while True:
                    sock.sendall(bytes(1 << 20))
            else:
                wait(how, sock)
                sock.recv(1)
            print("nothing", flush=True)
        except OSError as error:
            print(errno.errorcode[error.errno], flush=True)


def teller(address, port):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        while True:
            with contextlib.suppress(OSError):
                sock.sendto(b"told", (address, int(port)))
            time.sleep(PAUSE_S)


def asker(how, address, port):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.connect((address, int(port)))
        sock.send(b"asked")
        print("waits", flush=True)
        try:
            wait(how, sock)
            sock.recv(2000)
            print("nothing", flush=True)
        except OSError as error:
            print(errno.errorcode[error.errno], flush=True)
        # The socket itself is as good as before.
        while True:
            try:
                sock.send(b"again")
                print(sock.recv(2000).decode(), flush=True)
                break
            except OSError as error:
                print(errno.errorcode[error.errno], flush=True)


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])

"""Each way to wait: nothing there, data there, end there. Usage: waiting.py PORT"""

import select
import socket
import sys
import time


def by_select(sock, seconds):
    return bool(select.select([sock], [], [], seconds)[0])


def by_poll(sock, seconds):
    poll = select.poll()
    poll.register(sock, select.POLLIN)
    return bool(poll.poll(seconds * 1000))


def by_epoll(sock, seconds):
    with select.epoll() as epoll:
        epoll.register(sock, select.EPOLLIN | select.EPOLLET)
        return bool(epoll.poll(seconds))


def by_timeout(sock, seconds):
    sock.settimeout(seconds)
    try:
        sock.recv(1, socket.MSG_PEEK)
        return True
    except socket.timeout:
        return False
    finally:
        sock.settimeout(None)


WAYS = {"select": by_select, "poll": by_poll, "epoll": by_epoll, "timeout": by_timeout}


def serve(sock):
    words = []
    way = sock.makefile().readline().strip()
    if way not in WAYS:
        return
    wait = WAYS[way]
    before = time.monotonic()
    is_ready = wait(sock, 0.2)
    took = time.monotonic() - before
    words.append(
        "idle" if not is_ready and 0.19 < took < 0.5 else f"not idle ({is_ready}, {took:.3f} s)"
    )
    pair = socket.socketpair()
    pair[0].send(b"x")
    words.append("ready" if wait(pair[1], 1) else "not ready")
    sock.shutdown(socket.SHUT_RD)
    words.append("closed" if wait(sock, 1) and sock.recv(1) == b"" else "not closed")
    sock.sendall(f"{way}: {' '.join(words)}\n".encode())


listener = socket.create_server(("0.0.0.0", int(sys.argv[1])))
while True:
    connection, _ = listener.accept()
    with connection:
        serve(connection)

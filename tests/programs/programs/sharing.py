"""Threads of a process that share a connection of another one: sharing.py PORT forked|sent.

`forked`: each connection has a child of its own; `sent`: all go to one child in messages. The first
16 bytes of a connection say how its threads use it, all others are questions of 16 bytes, which are
answered with the process and the question. `turns`: one after the other; `duplex`: one reads and
one writes; `readers`: all read; `polled`, `epolled`, `queued` (kqueue): one waits for the other's
questions; `cancelled`: one is cancelled as it waits for room; `whole MS`: there is one thread,
which reads with MSG_WAITALL and a timeout, and fills a question up of which less has come by
then."""

import ctypes
import os
import queue
import select
import signal
import socket
import struct
import sys
import threading
import time

LEN = 16
THREADS = 3
# More than there is room for.
MUCH = 32_000_000


def read(sock, flags=0):
    """Returns a question, or nothing at the end."""
    got = b""
    while len(got) < LEN:
        piece = sock.recv(LEN - len(got), flags)
        if not piece:
            return b""
        got += piece
    return got


def answer(sock, question):
    sock.sendall(b"%8d " % os.getpid() + question)


def start(*targets):
    threads = [threading.Thread(target=target, daemon=True) for target in targets]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def turns(sock):
    places = [queue.SimpleQueue() for _ in range(THREADS)]

    def serve(number):
        while places[number].get():
            question = read(sock)
            if question:
                answer(sock, question)
            for place in (places[(number + 1) % THREADS],) if question else places:
                place.put(question)

    places[0].put(b"begin")
    start(*(lambda number=number: serve(number) for number in range(THREADS)))


def duplex(sock):
    questions = queue.SimpleQueue()

    def reader():
        while question := read(sock):
            questions.put(question)
        questions.put(b"")

    def writer():
        while question := questions.get():
            answer(sock, question)

    start(reader, writer)


def readers(sock):
    def serve():
        while question := read(sock, socket.MSG_WAITALL):
            answer(sock, question)

    start(*[serve] * THREADS)


def waited(sock, wait):
    ready, done = queue.SimpleQueue(), queue.SimpleQueue()

    def waiter():
        go_on = True
        while go_on:
            wait()
            ready.put(b"x")
            go_on = done.get()

    def server():
        question = b"begin"
        while question:
            ready.get()
            question = read(sock)
            if question:
                answer(sock, question)
            done.put(question)

    start(waiter, server)


def polled(sock):
    poll = select.poll()
    poll.register(sock, select.POLLIN)
    waited(sock, poll.poll)


def epolled(sock):
    epoll = select.epoll()
    epoll.register(sock, select.EPOLLIN)
    waited(sock, epoll.poll)


class Kevent(ctypes.Structure):
    _fields_ = [
        ("ident", ctypes.c_size_t),
        ("filter", ctypes.c_short),
        ("flags", ctypes.c_ushort),
        ("fflags", ctypes.c_uint),
        ("data", ctypes.c_int64),
        ("udata", ctypes.c_void_p),
        ("ext", ctypes.c_uint64 * 4),
    ]


def queued(sock):
    libc = ctypes.CDLL(None, use_errno=True)
    kq, event = libc.kqueue(), Kevent()
    # EVFILT_READ, EV_ADD
    change = Kevent(ident=sock.fileno(), filter=-1, flags=1)
    assert libc.kevent(kq, ctypes.byref(change), 1, None, 0, None) == 0
    waited(sock, lambda: libc.kevent(kq, None, 0, ctypes.byref(event), 1, None))


def cancelled(sock):
    libc = ctypes.CDLL(None)

    def writer():
        libc.send(sock.fileno(), b"-" * MUCH, ctypes.c_size_t(MUCH), 0)

    thread = threading.Thread(target=writer, daemon=True)
    thread.start()
    time.sleep(0.1)
    libc.pthread_cancel(ctypes.c_ulong(thread.ident))
    while question := read(sock):
        answer(sock, question)
    os._exit(0)


def set_time(sock, ms):
    seconds, rest = divmod(ms, 1000)
    limit = struct.pack("ll", seconds, rest * 1000)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)


def whole(sock, ms):
    set_time(sock, int(ms))
    while True:
        try:
            question = sock.recv(LEN, socket.MSG_WAITALL)
        except BlockingIOError:
            continue
        if not question:
            return
        answer(sock, question.ljust(LEN, b"-"))


def serve(sock):
    way = read(sock).decode().split()
    # A look whether there is a listener says nothing.
    if way:
        globals()[way[0]](sock, *way[1:])
    sock.close()


def child_of(ways):
    while True:
        _, fds, _, _ = socket.recv_fds(ways, 1, 1)
        if not fds:
            os._exit(0)
        threading.Thread(target=serve, args=(socket.socket(fileno=fds[0]),)).start()


def main(port, how):
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    ours, theirs = socket.socketpair()
    if how == "sent" and os.fork() == 0:
        ours.close()
        child_of(theirs)
    server = socket.create_server(("0.0.0.0", port))
    while True:
        sock, _ = server.accept()
        if how == "sent":
            socket.send_fds(ours, [b"x"], [sock.fileno()])
        elif os.fork() == 0:
            server.close()
            serve(sock)
            os._exit(0)
        sock.close()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])

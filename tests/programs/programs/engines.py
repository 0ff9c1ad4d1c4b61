"""Threads that each wait on a set of their own. Usage: engines.py HOW PORT THREADS, where HOW is

own: each thread has its own SO_REUSEPORT listener; a line is answered with the thread's number,
    `tid` with the kernel's.
late: the same, but all threads after the first listen once that one waits, and wait 0.4 s later.
dies: of two threads for each listener the first ends after its first connection, the other one goes
on with its set.
forks: while the threads wait, children are forked, one for each line that says `fork`.
hands: one thread accepts, the others serve.
each: one thread accepts and starts a thread for each connection, in which it blocks, until the
peer's end or the line `bye`.
polls: the same, with poll() before each call."""

import os
import select
import socket
import sys
import threading
import time


def listen(port):
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    sock.bind(("0.0.0.0", port))
    sock.listen(512)
    sock.setblocking(False)
    return sock


class Loop:
    def __init__(self, number, listener=None):
        self.number = number
        self.set = select.epoll()
        self.listener = listener
        self.socks = {}
        if listener:
            self.set.register(listener, select.EPOLLIN)

    def take(self, sock):
        sock.setblocking(False)
        self.socks[sock.fileno()] = sock
        self.set.register(sock, select.EPOLLIN)

    def run(self, connections=None):
        """Until so many connections have been accepted."""
        taken = 0
        while taken != connections:
            for fd, _ in self.set.poll():
                if self.listener and fd == self.listener.fileno():
                    try:
                        sock, _ = self.listener.accept()
                    except BlockingIOError:
                        continue
                    self.take(sock)
                    taken += 1
                else:
                    self.serve(self.socks[fd])

    def serve(self, sock):
        try:
            data = sock.recv(65536)
        except ConnectionResetError:
            data = b""
        if not data:
            del self.socks[sock.fileno()]
            sock.close()
        elif data == b"fork\n":
            child = os.fork()
            if child == 0:
                os._exit(7)
            status = os.waitpid(child, 0)[1]
            sock.sendall(b"%d\n" % os.waitstatus_to_exitcode(status))
        elif data == b"who\n":
            sock.sendall(b"%d\n" % self.number)
        elif data == b"tid\n":
            sock.sendall(b"%d\n" % threading.get_native_id())
        else:
            sock.setblocking(True)
            sock.sendall(data)
            sock.setblocking(False)


def own(port, threads):
    listening = []

    def work(number):
        loop = Loop(number, listen(port))
        listening.append(number)
        if len(listening) == threads:
            print("all listen", flush=True)
        loop.run()

    for number in range(1, threads):
        threading.Thread(target=work, args=(number,)).start()
    work(0)


forks = own


def late(port, threads):
    def work(number):
        loop = Loop(number, listen(port))
        time.sleep(0.4)
        loop.run()

    for number in range(1, threads):
        threading.Timer(0.2, work, args=(number,)).start()
    Loop(0, listen(port)).run()


def dies(port, threads):
    def work(number):
        loop = Loop(number, listen(port))
        first = threading.Thread(target=loop.run, args=(1,))
        first.start()
        first.join()
        loop.run()

    for number in range(threads):
        threading.Thread(target=work, args=(number,)).start()


def hands(port, threads):
    loops = [Loop(number) for number in range(threads)]
    for loop in loops:
        threading.Thread(target=loop.run).start()
    listener = listen(port)
    listener.setblocking(True)
    count = 0
    while True:
        sock, _ = listener.accept()
        loops[count % threads].take(sock)
        count += 1


def each(port, threads, waits=None):
    def work(number, sock):
        text = b""
        with sock:
            while True:
                if waits:
                    waits(sock)
                text += sock.recv(65536, socket.MSG_DONTWAIT if waits else 0)
                if not text:
                    return
                if text == b"bye\n":
                    return
                if text == b"end\n":
                    # Another thread ends the stream while this one waits.
                    threading.Timer(0.02, sock.shutdown, (socket.SHUT_WR,)).start()
                elif text == b"who\n":
                    sock.sendall(b"%d\n" % number)
                else:
                    sock.sendall(text)
                text = b""

    listener = listen(port)
    listener.setblocking(True)
    number = 0
    while True:
        sock, _ = listener.accept()
        threading.Thread(target=work, args=(number, sock), daemon=True).start()
        number += 1


def polls(port, threads):
    def waits(sock):
        poll = select.poll()
        poll.register(sock, select.POLLIN)
        poll.poll()

    each(port, threads, waits)


if __name__ == "__main__":
    globals()[sys.argv[1]](int(sys.argv[2]), int(sys.argv[3]))

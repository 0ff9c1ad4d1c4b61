"""A thread that waits for the kernel's descriptors beside one that answers.
Usage: bystander.py PORT

One thread waits on an epoll set with a pipe, and begins before there is a socket. The other one
answers datagrams:

count: the voluntary context switches of the first thread so far.
pipe: a byte goes into the pipe, and the first thread answers.
add: the first thread's set gets a second socket, on the next port, and the other one sleeps."""

import os
import pathlib
import select
import socket
import sys
import threading
import time


class Bystander:
    def __init__(self):
        self.set = select.epoll()
        self.out, self.into = os.pipe()
        self.set.register(self.out, select.EPOLLIN)
        self.asks = []
        self.added = None
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        self.status = pathlib.Path(f"/proc/self/task/{threading.get_native_id()}/status")
        while True:
            for fd, _ in self.set.poll():
                if fd == self.out:
                    os.read(fd, 1)
                    sock, sender = self.asks.pop()
                    sock.sendto(b"from the pipe", sender)
                else:
                    text, sender = self.added.recvfrom(2000)
                    self.added.sendto(text, sender)

    def count(self):
        (line,) = (it for it in self.status.read_text().splitlines() if it.startswith("volun"))
        return int(line.split()[1])


def bound(port):
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.bind(("0.0.0.0", port))
    return sock


def main(port):
    bystander = Bystander()
    time.sleep(0.2)
    sock = bound(port)
    print("waits", flush=True)
    while True:
        text, sender = sock.recvfrom(2000)
        if text == b"pipe":
            bystander.asks.append((sock, sender))
            os.write(bystander.into, b"x")
        elif text == b"add":
            bystander.added = bound(port + 1)
            bystander.set.register(bystander.added, select.EPOLLIN)
            sock.sendto(b"added", sender)
            time.sleep(1000)
        else:
            sock.sendto(b"%d" % bystander.count(), sender)


if __name__ == "__main__":
    main(int(sys.argv[1]))

"""Workers that serve one connection after the other, and are killed while they serve none.

killed_workers.py PORT WORKERS HOW...

HOW is any of `ipv6`, `reuseport` (a listener for each worker), `deferred` (TCP_DEFER_ACCEPT) and
`alone` (a killed worker has no successor). Each line on standard input kills the oldest worker with
SIGKILL; its number is printed. An answer is the question with the worker's number before it."""

import mmap
import os
import select
import signal
import socket
import sys
import time

PORT, WORKERS, HOW = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
BACKLOG = 512
# A byte for each worker: 1 while it has a connection.
BUSY = mmap.mmap(-1, 4096)


def listen():
    family = socket.AF_INET6 if "ipv6" in HOW else socket.AF_INET
    sock = socket.socket(family)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if "reuseport" in HOW:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    if "deferred" in HOW:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_DEFER_ACCEPT, 30)
    sock.bind(("", PORT))
    sock.listen(BACKLOG)
    sock.setblocking(False)
    return sock


def serve(listener, number):
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    poll = select.epoll()
    poll.register(listener, select.EPOLLIN)
    while True:
        poll.poll()
        BUSY[number] = 1
        try:
            sock, _ = listener.accept()
        except BlockingIOError:
            pass
        else:
            with sock:
                sock.setblocking(True)
                sock.sendall(b"%d %s" % (os.getpid(), sock.recv(100)))
        BUSY[number] = 0


def start(listener, number):
    BUSY[number] = 0
    pid = os.fork()
    if pid == 0:
        serve(listener, number)
    return pid, number


def kill(pid, number):
    """Kills a worker that has no connection."""
    while True:
        os.kill(pid, signal.SIGSTOP)
        os.waitpid(pid, os.WUNTRACED)
        if not BUSY[number]:
            break
        os.kill(pid, signal.SIGCONT)
        time.sleep(0.001)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def end(*_):
    for pid, _ in workers:
        os.kill(pid, signal.SIGKILL)
    sys.exit(0)


listeners = [listen() for _ in range(WORKERS if "reuseport" in HOW else 1)]
workers = [start(listeners[number % len(listeners)], number) for number in range(WORKERS)]
signal.signal(signal.SIGTERM, end)
print("started", flush=True)
for _ in sys.stdin:
    pid, number = workers.pop(0)
    kill(pid, number)
    if "alone" not in HOW:
        workers.append(start(listeners[number % len(listeners)], number))
    print(pid, flush=True)
end()

"""Two processes with one UDP socket, each of which is away for a while with each datagram that it
takes: one_queue.py HOW PORT ADDRESS. They answer with their number and the datagram.

HOW: `fork`: children of one that has not used the socket; `epoll`: those wait by epoll, without
blocking; `message`: one gets the socket from the other in a message; `program`: one is another
program, which the other starts; `group`: as fork, and the socket is in a group by ADDRESS;
`groups`: as group, with two sockets, each of which two children have: the answer begins with the
number of the socket."""

import os
import select
import signal
import socket
import subprocess
import sys
import time

AWAY_SECONDS = 1
GROUP = "239.7.7.8"


def bound(port):
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.bind(("0.0.0.0", int(port)))
    return sock


def in_group(port, address):
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.bind(("0.0.0.0", int(port)))
    member = socket.inet_aton(GROUP) + socket.inet_aton(address)
    sock.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, member)
    return sock


def answers(sock, by_epoll=False, number=None):
    own = b"%d " % (os.getpid() if number is None else number)
    epoll = select.epoll()
    if by_epoll:
        sock.setblocking(False)
        epoll.register(sock, select.EPOLLIN)
    while True:
        if by_epoll:
            epoll.poll()
        try:
            data, sender = sock.recvfrom(2000)
        except BlockingIOError:
            continue
        end = time.monotonic() + AWAY_SECONDS
        while time.monotonic() < end:
            time.sleep(0.01)
        sock.sendto(own + data, sender)


def child(serve, *args):
    pid = os.fork()
    if pid == 0:
        serve(*args)
    return pid


def receives(unix):
    _, fds, _, _ = socket.recv_fds(unix, 1, 1)
    answers(socket.socket(fileno=fds[0]))


def sends(unix, port):
    sock = bound(port)
    # It has received before: the message takes nothing from it.
    sock.settimeout(0.01)
    try:
        sock.recv(1)
    except TimeoutError:
        sock.settimeout(None)
    socket.send_fds(unix, [b"x"], [sock.fileno()])
    answers(sock)


def starts(port):
    sock = bound(port)
    os.set_inheritable(sock.fileno(), True)
    words = [sys.executable, __file__, "started", str(sock.fileno())]
    started = subprocess.Popen(words, close_fds=False)
    ends_with([started.pid])
    print("workers", os.getpid(), started.pid, flush=True)
    answers(sock)


def ends_with(workers):
    def end(*_):
        for pid in workers:
            os.kill(pid, signal.SIGKILL)
        os._exit(0)

    signal.signal(signal.SIGTERM, end)


def main(how, port, address=None):
    if how == "started":
        return answers(socket.socket(fileno=int(port)))
    if how == "program":
        return starts(port)
    if how == "message":
        one, other = socket.socketpair()
        workers = [child(sends, one, port), child(receives, other)]
    elif how == "groups":
        socks = [in_group(port, address) for _ in range(2)]
        numbered = [(number, sock) for number, sock in enumerate(socks) for _ in range(2)]
        workers = [child(answers, sock, False, number) for number, sock in numbered]
    else:
        sock = in_group(port, address) if how == "group" else bound(port)
        workers = [child(answers, sock, how == "epoll") for _ in range(2)]

    ends_with(workers)
    print("workers", *workers, flush=True)
    while True:
        signal.pause()


main(*sys.argv[1:])

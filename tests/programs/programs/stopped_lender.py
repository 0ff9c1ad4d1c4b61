"""A child that serves a UDP socket which its parent has used: stopped_lender.py HOW PORT PEER
PEER_PORT

The parent asks the echo at PEER and forks; the child answers each datagram with its number and the
datagram. HOW: `recv` waits in recvfrom, `epoll` and `poll` in those, `many` in recvmmsg; `late`: as
recv, 0.5 s after the fork; `parent`: as recv, and the parent receives too; `grandchild`: as recv,
in a child of the child."""

import ctypes
import os
import select
import signal
import socket
import sys
import time


PR_SET_PDEATHSIG = 1


class Iovec(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("len", ctypes.c_size_t)]


class Message(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_void_p),
        ("namelen", ctypes.c_uint32),
        ("iov", ctypes.POINTER(Iovec)),
        ("iovlen", ctypes.c_size_t),
        ("control", ctypes.c_void_p),
        ("controllen", ctypes.c_size_t),
        ("flags", ctypes.c_uint64),
        ("len", ctypes.c_uint32),
    ]


def received_by_recvmmsg(sock):
    """Returns one datagram and its sender."""
    libc = ctypes.CDLL(None, use_errno=True)
    data, name = ctypes.create_string_buffer(2000), ctypes.create_string_buffer(16)
    iov = Iovec(ctypes.addressof(data), 2000)
    message = Message(ctypes.addressof(name), 16, ctypes.pointer(iov), 1)
    count = libc.recvmmsg(sock.fileno(), ctypes.byref(message), 1, 0, None)
    assert count == 1, os.strerror(ctypes.get_errno())
    port = int.from_bytes(name.raw[2:4], "big")
    return data.raw[: message.len], (socket.inet_ntoa(name.raw[4:8]), port)


def wait_of(how, sock):
    if how == "epoll":
        sets = select.epoll()
        sets.register(sock, select.EPOLLIN)
        return sets.poll
    poll = select.poll()
    poll.register(sock, select.POLLIN)
    return poll.poll


def answers(how, sock):
    own = b"%d " % os.getpid()
    waits = wait_of(how, sock) if how in ("epoll", "poll") else None
    while True:
        if how == "many":
            data, sender = received_by_recvmmsg(sock)
        elif waits is None:
            data, sender = sock.recvfrom(2000)
        else:
            waits()
            try:
                data, sender = sock.recvfrom(2000, socket.MSG_DONTWAIT)
            except BlockingIOError:
                continue
        sock.sendto(own + data, sender)


def main(how, port, peer, peer_port):
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.bind(("0.0.0.0", int(port)))
    sock.sendto(b"used", (peer, int(peer_port)))
    assert sock.recv(100) == b"used"
    ends = os.pipe()
    child = os.fork()
    if child == 0:
        if how == "grandchild":
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            # Its own parent has used the socket, too.
            select.select([sock], [], [], 0)
            if os.fork() > 0:
                signal.pause()
        os.write(ends[1], b"%d" % os.getpid())
        if how == "late":
            time.sleep(0.5)
        answers(how, sock)
    child = int(os.read(ends[0], 20))

    def end(*_):
        os.kill(child, signal.SIGKILL)
        os._exit(0)

    def receives_one(*_):
        # The child is stopped.
        assert select.select([sock], [], [], 5)[0]
        data, sender = sock.recvfrom(2000, socket.MSG_DONTWAIT)
        sock.sendto(b"%d " % os.getpid() + data, sender)

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGUSR1, receives_one)
    print("workers", os.getpid(), child, flush=True)
    if how == "parent":
        answers(how, sock)
    while True:
        signal.pause()


main(*sys.argv[1:])

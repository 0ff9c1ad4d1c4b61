"""Four processes that receive from one UDP socket. Usage: prefork_udp.py HOW PORT PEER PEER_PORT

The parent binds the socket, asks the echo at PEER, and forks. Each child answers what it receives
with its number and the datagram. HOW: `recv` waits in recvfrom, `epoll` and `poll` in those;
`parent`: as recv, and the parent receives too."""

import os
import select
import signal
import socket
import sys

CHILDREN = 4


def wait_of(how, sock):
    """Returns a function that returns when the socket may have something."""
    if how == "epoll":
        sets = select.epoll()
        sets.register(sock, select.EPOLLIN)
        return sets.poll
    poll = select.poll()
    poll.register(sock, select.POLLIN)
    return poll.poll


def answers(how, sock):
    waits = wait_of(how, sock) if how in ("epoll", "poll") else lambda: None
    flags = socket.MSG_DONTWAIT if how in ("epoll", "poll") else 0
    own = b"%d " % os.getpid()
    while True:
        waits()
        try:
            data, sender = sock.recvfrom(2000, flags)
        except BlockingIOError:
            continue
        sock.sendto(own + data, sender)


def main(how, port, peer, peer_port):
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.bind(("0.0.0.0", int(port)))
    sock.sendto(b"used", (peer, int(peer_port)))
    assert sock.recv(100) == b"used"
    children = []
    for _ in range(CHILDREN):
        pid = os.fork()
        if pid == 0:
            answers(how, sock)
        children.append(pid)

    def end(*_):
        for pid in children:
            os.kill(pid, signal.SIGTERM)
        os._exit(0)

    signal.signal(signal.SIGTERM, end)
    print("forked", flush=True)
    if how == "parent":
        answers(how, sock)
    while True:
        signal.pause()


if __name__ == "__main__":
    main(*sys.argv[1:])

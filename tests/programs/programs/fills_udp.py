"""Sends datagrams for some seconds, whenever there is room for more.
Usage: fills_udp.py ADDRESS PORT SECONDS HOW, where HOW is any of `poll`, `epoll`, `edge` (EPOLLET),
and with `-bound` bound to all addresses.

Prints how many calls have waited for room, how many of them found none after all, the datagrams
sent, and the milliseconds of processor time."""

import select
import socket
import sys
import time

LENGTH = 1000
# More than a send buffer holds: where the device takes or loses all, there is always room.
AT_ONCE = 2000


def waits_by_poll(sock):
    poll = select.poll()
    poll.register(sock, select.POLLOUT)
    return lambda: poll.poll(1000)


def waits_by_epoll(sock, edge=0):
    poll = select.epoll()
    poll.register(sock, select.EPOLLOUT | edge)
    return lambda: poll.poll(1)


def send_all(sock, to):
    """Sends until there is no room, or enough."""
    count = 0
    try:
        while count < AT_ONCE:
            sock.sendto(bytes(LENGTH), to)
            count += 1
    except BlockingIOError:
        pass
    return count


def main(address, port, seconds, how):
    to = (address, int(port))
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.setblocking(False)
    if how.endswith("-bound"):
        sock.bind(("0.0.0.0", 7001))
    how = how.removesuffix("-bound")
    if how == "poll":
        wait = waits_by_poll(sock)
    else:
        wait = waits_by_epoll(sock, select.EPOLLET if how == "edge" else 0)
    sent = send_all(sock, to)
    waits = vain = 0
    end, begun = time.monotonic() + float(seconds), time.process_time()
    while time.monotonic() < end:
        if not wait():
            continue
        waits += 1
        count = send_all(sock, to)
        vain += count == 0
        sent += count
    print(waits, vain, sent, round(1000 * (time.process_time() - begun)))


main(*sys.argv[1:])

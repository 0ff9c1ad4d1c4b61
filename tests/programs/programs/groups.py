"""Joins groups of both families with two sockets each, prints the datagrams that arrive, and
executes the commands in them."""

import errno
import select
import socket
import struct
import sys

GROUP, GROUP6 = "239.7.7.7", "ff15::77"
port, own, interface = int(sys.argv[1]), sys.argv[2], socket.if_nametoindex(sys.argv[3])
JOIN = {
    socket.AF_INET: (
        socket.IPPROTO_IP,
        socket.IP_ADD_MEMBERSHIP,
        socket.IP_DROP_MEMBERSHIP,
        socket.inet_aton(GROUP) + socket.inet_aton(own),
    ),
    socket.AF_INET6: (
        socket.IPPROTO_IPV6,
        socket.IPV6_JOIN_GROUP,
        socket.IPV6_LEAVE_GROUP,
        socket.inet_pton(socket.AF_INET6, GROUP6) + struct.pack("@I", interface),
    ),
}


def joined(family, number):
    made = socket.socket(family, socket.SOCK_DGRAM)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if family == socket.AF_INET6:
        made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_IF, interface)
    else:
        made.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(own))
    # Before and after bind.
    level, join, _, request = JOIN[family]
    if number == 0:
        made.setsockopt(level, join, request)
    made.bind(("::" if family == socket.AF_INET6 else "0.0.0.0", port))
    if number == 1:
        made.setsockopt(level, join, request)
    return made


sockets = {joined(family, number): (family, number) for family in JOIN for number in (0, 1)}
try:
    level, join, _, request = JOIN[socket.AF_INET]
    next(iter(sockets)).setsockopt(level, join, request)
except OSError as error:
    print("again", errno.errorcode[error.errno])
print("ready", flush=True)
while True:
    for one in select.select(list(sockets), [], [])[0]:
        family, number = sockets[one]
        data, sender = one.recvfrom(2048)
        print(
            f"v{6 if family == socket.AF_INET6 else 4} {number} {sender[0]} {data.decode()}",
            flush=True,
        )
        group = GROUP6 if family == socket.AF_INET6 else GROUP
        level, _, leave, request = JOIN[family]
        if data == b"say" and number == 0:
            one.sendto(b"said", (group, port))
        if data == b"leave":
            one.setsockopt(level, leave, request)
        if data == b"shout" and number == 0:
            try:
                one.sendto(b"no", ("255.255.255.255", port))
            except OSError as error:
                print("shout", errno.errorcode[error.errno], flush=True)
            one.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
            one.sendto(b"shouted", (own.rsplit(".", 1)[0] + ".255", port))

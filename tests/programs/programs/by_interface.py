"""A stack on two interfaces, as a program sees it: the interfaces by which datagrams arrive and
leave, sockets bound to one of them, and groups. Each input line is a command, each output line
its result."""

import errno
import select
import socket
import struct
import sys

FIRST, SECOND = sys.argv[1:3]
GROUP, PORT = "239.7.7.7", 7001
IP_PKTINFO, IP_MULTICAST_ALL, IP_UNICAST_IF = 8, 49, 50


def pktinfo(index, source="0.0.0.0"):
    return [
        (
            socket.IPPROTO_IP,
            IP_PKTINFO,
            struct.pack("=I4s4s", index, socket.inet_aton(source), b"\0" * 4),
        )
    ]


datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
datagrams.setsockopt(socket.IPPROTO_IP, IP_PKTINFO, 1)


def member(own):
    return socket.inet_aton(GROUP) + socket.inet_aton(own)


# One membership by address, one by number; another socket's is on the second interface alone.
datagrams.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, member(sys.argv[3]))
by_number = member("0.0.0.0") + struct.pack("=I", socket.if_nametoindex(SECOND))
datagrams.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, by_number)
try:
    datagrams.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, member(sys.argv[4]))
    sys.exit("a second membership on one interface")
except OSError as error:
    assert error.errno == errno.EADDRINUSE, error
datagrams.bind(("", PORT))
datagrams.settimeout(10)

bound = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
bound.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, SECOND.encode())
bound.bind(("", PORT + 1))
bound.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, member(sys.argv[4]))
bound.settimeout(10)

listener = socket.socket()
listener.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, SECOND.encode())
listener.bind(("", PORT + 2))
listener.listen()
listener.settimeout(10)


def receive():
    data, control, _, sender = datagrams.recvmsg(100, 100)
    index, _, to = struct.unpack("=I4s4s", control[0][2])
    return data.decode(), socket.if_indextoname(index), socket.inet_ntoa(to), sender


print("ready", flush=True)
for line in sys.stdin:
    word, *rest = line.split()
    if word == "receive":
        data, name, to, sender = receive()
        datagrams.sendto(b"back", sender)
        print(data, name, to)
    elif word == "bound":
        data, sender = bound.recvfrom(100)
        bound.sendto(b"bound back", sender)
        print(data.decode())
    elif word == "accept":
        accepted, peer = listener.accept()
        print(accepted.getsockname()[0], peer[0])
        accepted.close()
    elif word == "say":
        # To a group by the interface of the address.
        speaker = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        speaker.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(rest[0]))
        speaker.sendto(b"said", (GROUP, PORT))
        print("said")
    elif word == "say-by-number":
        speaker = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        number = socket.if_nametoindex(rest[0])
        speaker.setsockopt(
            socket.IPPROTO_IP, socket.IP_MULTICAST_IF, struct.pack("=4s4sI", b"", b"", number)
        )
        speaker.sendto(b"said", (GROUP, PORT))
        print("said")
    elif word == "shout-by-number":
        # IP_UNICAST_IF, in network order.
        speaker = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        speaker.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        number = struct.pack(">I", socket.if_nametoindex(rest[0]))
        speaker.setsockopt(socket.IPPROTO_IP, IP_UNICAST_IF, number)
        assert speaker.getsockopt(socket.IPPROTO_IP, IP_UNICAST_IF, 4) == number
        speaker.sendto(b"shouted", ("255.255.255.255", PORT))
        print("shouted")
    elif word == "leave":
        # On the second interface another socket stays a member.
        datagrams.setsockopt(socket.IPPROTO_IP, IP_MULTICAST_ALL, 0)
        datagrams.setsockopt(socket.IPPROTO_IP, socket.IP_DROP_MEMBERSHIP, member(sys.argv[4]))
        # The datagrams that this program sent to the group, and to all, were received by it too.
        while select.select([datagrams], [], [], 0.2)[0]:
            datagrams.recv(100)
        print("left")
    elif word == "shout":
        # To all by the interface of this number.
        speaker = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        speaker.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        speaker.sendmsg(
            [b"shouted"], pktinfo(socket.if_nametoindex(rest[0])), 0, ("255.255.255.255", PORT)
        )
        print("shouted")
    sys.stdout.flush()

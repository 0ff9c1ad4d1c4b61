"""A stack on two interfaces, seen by a program: which of them datagrams come by and leave by, what is bound to one of
them, and groups. Each line that is read says what to do, each line that is written what came of it."""

import socket
import struct
import sys

FIRST, SECOND = sys.argv[1:3]
GROUP, PORT = "239.7.7.7", 7001
IP_PKTINFO, IP_UNICAST_IF = 8, 50


def pktinfo(index, source="0.0.0.0"):
    return [(socket.IPPROTO_IP, IP_PKTINFO, struct.pack("=I4s4s", index, socket.inet_aton(source), b"\0" * 4))]


datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
datagrams.setsockopt(socket.IPPROTO_IP, IP_PKTINFO, 1)
# The first socket hears what the second one asks for too (IP_MULTICAST_ALL).
second = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for member, own in ((datagrams, sys.argv[3]), (second, sys.argv[4])):
    member.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, socket.inet_aton(GROUP) + socket.inet_aton(own))
datagrams.bind(("", PORT))
datagrams.settimeout(10)

bound = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
bound.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, SECOND.encode())
bound.bind(("", PORT + 1))
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
    elif word == "shout":
        # To all by the interface of this number.
        speaker = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        speaker.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        speaker.sendmsg([b"shouted"], pktinfo(socket.if_nametoindex(rest[0])), 0, ("255.255.255.255", PORT))
        print("shouted")
    sys.stdout.flush()

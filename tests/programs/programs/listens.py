"""Prints what it hears of addresses, interfaces, routes or neighbours on a netlink socket, as `ip
monitor`, with the number of who has told it (0: the kernel).

listens.py address|link|route|neighbour…
"""

import select
import socket
import struct
import sys

GROUPS = {"address": 0x10 | 0x100, "link": 0x1, "route": 0x40 | 0x400, "neighbour": 0x4}
KINDS = {16: "link", 20: "address", 24: "route", 28: "neighbour"}
ADDRESS_SIZE, LINK_SIZE, ROUTE_SIZE, NEIGHBOUR_SIZE = 8, 16, 12, 12
IFA_ADDRESS = 1
IFLA_IFNAME, IFLA_MTU = 3, 4
RTA_DST, RTA_OIF, RTA_GATEWAY, RTA_TABLE = 1, 4, 5, 15
NDA_DST, NDA_LLADDR = 1, 2
IFF_UP = 1


def attributes(data):
    found = {}
    while data:
        size, name = struct.unpack_from("=HH", data)
        found[name] = data[4:size]
        data = data[(size + 3) & ~3 :]
    return found


def address(body):
    family, prefix, _, _, index = struct.unpack_from("=BBBBI", body)
    text = socket.inet_ntop(family, attributes(body[ADDRESS_SIZE:])[IFA_ADDRESS])
    return f"{text}/{prefix} {socket.if_indextoname(index)}"


def link(body):
    _, flags = struct.unpack_from("=iI", body, 4)
    found = attributes(body[LINK_SIZE:])
    (mtu,) = struct.unpack("=I", found[IFLA_MTU])
    name = found[IFLA_IFNAME].rstrip(b"\0").decode()
    return f"{name} {'up' if flags & IFF_UP else 'down'} mtu {mtu}"


def route(body):
    family, prefix = body[0], body[1]
    found = attributes(body[ROUTE_SIZE:])
    text = socket.inet_ntop(family, found[RTA_DST]) if prefix else "default"
    via = socket.inet_ntop(family, found[RTA_GATEWAY]) if RTA_GATEWAY in found else "none"
    (table,) = struct.unpack("=I", found[RTA_TABLE])
    (out,) = struct.unpack("=I", found[RTA_OIF]) if RTA_OIF in found else (0,)
    device = socket.if_indextoname(out) if out else "none"
    return f"{text}/{prefix} via {via} dev {device} table {table}"


def neighbour(body):
    family, _, _, index = struct.unpack_from("=BBHI", body)
    found = attributes(body[NEIGHBOUR_SIZE:])
    text = socket.inet_ntop(family, found[NDA_DST])
    return f"{text} {socket.if_indextoname(index)} {found.get(NDA_LLADDR, b'').hex(':')}"


READ = {"address": address, "link": link, "route": route, "neighbour": neighbour}

netlink = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE)
netlink.bind((0, sum(GROUPS[name] for name in sys.argv[1:])))
print("listens", flush=True)
poll = select.poll()
poll.register(netlink, select.POLLIN)
while True:
    poll.poll()
    data, (sender, _) = netlink.recvfrom(65536)
    while data:
        length, kind = struct.unpack_from("=IH", data)
        if kind & ~1 in KINDS:
            verb = "gone" if kind & 1 else "new"
            print(f"{verb} {READ[KINDS[kind & ~1]](data[16:length])} from {sender}", flush=True)
        data = data[(length + 3) & ~3 :]

"""Sockets that use no router."""

from harness import test

# The results of a connection and of datagrams to the peer and to an address behind it.
TRY = """
import errno, socket, sys
DONTROUTE = 5
far, near = ("203.0.113.9", 7999), (sys.argv[1], 7999)
def name(call):
    try:
        call()
        return "ok"
    except OSError as error:
        return errno.errorcode[error.errno]
def made(kind, is_direct):
    sock = socket.socket(socket.AF_INET, kind)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_DONTROUTE, is_direct)
    sock.setblocking(False)
    return sock
for is_direct in (0, 1):
    print(name(lambda: made(socket.SOCK_STREAM, is_direct).connect(far)))
    for to in (near, far):
        print(name(lambda: made(socket.SOCK_DGRAM, is_direct).connect(to)))
        print(name(lambda: made(socket.SOCK_DGRAM, is_direct).sendto(b"x", to)))
        flags = socket.MSG_DONTROUTE * is_direct
        print(name(lambda: made(socket.SOCK_DGRAM, 0).sendto(b"x", flags, to)))
late = made(socket.SOCK_DGRAM, 0)
late.connect(far)
late.setsockopt(socket.SOL_SOCKET, socket.SO_DONTROUTE, 1)
print(name(lambda: late.send(b"x")))
"""
ROUTED = ["EINPROGRESS", *["ok"] * 6]
DIRECT = ["ENETUNREACH", *["ok"] * 3, *["ENETUNREACH"] * 3]


@test
def without_a_router_only_the_link_is_reached(world):
    started = world.stack("/usr/bin/python3", "-c", TRY, world.peer_address)
    assert started.finish().split() == [*ROUTED, *DIRECT, "ENETUNREACH"], started.output()

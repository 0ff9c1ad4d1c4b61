"""Sockets that may have to fall back. Usage: strict.py PEER PORT | strict.py fork PORT"""

import errno
import os
import socket
import sys
import time

TCP, UDP = (socket.AF_INET, socket.SOCK_STREAM), (socket.AF_INET, socket.SOCK_DGRAM)
kept = []


def tell(name, call, *words):
    try:
        call(*words)
        print(name, "works", flush=True)
    except OSError as error:
        print(name, errno.errorcode[error.errno], flush=True)


def made(*kind):
    kept.append(socket.socket(*kind))
    return kept[-1]


def listen(address):
    sock = made(*TCP)
    sock.bind(address)
    sock.listen()


def on_every_side(peer, port):
    tell("listen", listen, ("0.0.0.0", port))
    tell("listen-own", listen, ("10.77.0.2", port + 1))
    tell("listen-loopback", listen, ("127.0.0.1", port + 2))
    tell("udp-bind", made(*UDP).bind, ("0.0.0.0", port))
    tell("udp-send", made(*UDP).sendto, b"x", (peer, port))
    tell("udp-send-beyond", made(*UDP).sendto, b"x", ("198.51.100.1", port))
    tell("udp-connect", made(*UDP).connect, (peer, port))
    tell("connect", made(*TCP).connect, (peer, port))
    tell("connect-beyond", made(*TCP).connect, ("198.51.100.1", port))
    tell("bind-beyond", made(*TCP).bind, ("198.51.100.1", port))
    tell("raw", made, socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)


def in_a_child(port):
    listen(("0.0.0.0", port))
    made(*UDP).bind(("0.0.0.0", port))
    print("listen works", flush=True)
    parent = os.getpid()
    if os.fork() == 0:
        tell("accept", kept[0].accept)
        # Its parent has the socket on the stack and passes on what comes.
        tell("recv", kept[1].recv, 1, socket.MSG_DONTWAIT)
        print("ready", flush=True)
        while os.getppid() == parent:
            time.sleep(0.1)
        os._exit(0)
    os.wait()


if sys.argv[1] == "fork":
    in_a_child(int(sys.argv[2]))
else:
    on_every_side(sys.argv[1], int(sys.argv[2]))
    print("ready", flush=True)
    time.sleep(60)

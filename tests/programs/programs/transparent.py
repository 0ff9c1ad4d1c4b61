"""Connects from addresses that are not this host's (IP_TRANSPARENT) and prints what came of each:
FAMILY,KIND,SOURCE,SOURCE-PORT,ADDRESS,PORT in each argument."""

import errno
import socket
import sys

IPV6_TRANSPARENT = 75
FAMILIES = {
    "4": (socket.AF_INET, (socket.IPPROTO_IP, socket.IP_TRANSPARENT)),
    "6": (socket.AF_INET6, (socket.IPPROTO_IPV6, IPV6_TRANSPARENT)),
}


def attempt(family, kind, source, source_port, address, port):
    domain, option = FAMILIES[family]
    transport = socket.SOCK_STREAM if kind.startswith("tcp") else socket.SOCK_DGRAM
    with socket.socket(domain, transport) as sock:
        sock.settimeout(10)
        if not kind.endswith("plain"):
            sock.setsockopt(*option, 1)
        sock.bind((source, int(source_port)))
        sock.connect((address, int(port)))
        own = sock.getsockname()
        sock.sendall(b"x" * 1000)
        if transport == socket.SOCK_STREAM:
            sock.shutdown(socket.SHUT_WR)
        said = sock.recv(1000).decode()
        return f"{own[0]} {said}"


for words in sys.argv[1:]:
    try:
        answer = attempt(*words.split(","))
    except OSError as error:
        answer = errno.errorcode.get(error.errno, type(error).__name__)
    print(answer, flush=True)

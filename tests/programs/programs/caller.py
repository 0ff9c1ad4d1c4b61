"""A server on [::] that calls others: each line HOST PORT [SOURCE [MARK]] is answered with the
address that the call came from, or with the name of the error. SOURCE may be "any"."""

import errno
import socket
import sys


def call(host, port, source="any", mark=0):
    # The address may have a zone (fe80::1%eth1).
    family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    try:
        with socket.socket(family, kind) as connected:
            connected.settimeout(2)
            if mark:
                connected.setsockopt(socket.SOL_SOCKET, socket.SO_MARK, int(mark))
            if source != "any":
                connected.bind((source, 0))
            connected.connect(address)
            return connected.getsockname()[0]
    except OSError as error:
        return errno.errorcode.get(error.errno, "timeout")


with socket.create_server(
    ("::", int(sys.argv[1])), family=socket.AF_INET6, dualstack_ipv6=True
) as listener:
    while True:
        asker, _ = listener.accept()
        with asker, asker.makefile("rw") as lines:
            for line in lines:
                print(call(*line.split()), file=lines, flush=True)

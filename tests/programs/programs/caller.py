"""A server on [::] that calls others: each line HOST PORT [SOURCE] is answered with the address
that the call came from, or with the name of the error."""

import errno
import socket
import sys


def call(host, port, source=None):
    try:
        with socket.create_connection(
            (host, int(port)), timeout=2, source_address=source and (source, 0)
        ) as connected:
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

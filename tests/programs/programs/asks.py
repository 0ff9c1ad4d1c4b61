"""Connects, sends `asks`, and from then on only polls, without ever waiting, until its
connection ends. Usage: asks.py ADDRESS PORT"""

import errno
import socket
import sys
import time

with socket.create_connection((sys.argv[1], int(sys.argv[2]))) as sock:
    sock.setblocking(False)
    print("asks", flush=True)
    end = time.monotonic() + 20
    while time.monotonic() < end:
        try:
            print("end" if sock.recv(1) == b"" else "data", flush=True)
            break
        except BlockingIOError:
            pass
        except OSError as error:
            print(errno.errorcode[error.errno], flush=True)
            break
    else:
        sys.exit("nothing was told")

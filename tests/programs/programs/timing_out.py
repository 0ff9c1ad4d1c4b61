"""Each connection has a child that waits for bytes which do not come, and says how many seconds
that has taken. Usage: timing_out.py ADDRESS PORT SECONDS (SO_RCVTIMEO)"""

import os
import socket
import struct
import sys
import time


def serve(sock, seconds):
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("@qq", seconds, 0))
    begin = time.monotonic()
    try:
        sock.recv(1)
    except BlockingIOError:
        sock.sendall(str(time.monotonic() - begin).encode())


def main():
    server = socket.create_server((sys.argv[1], int(sys.argv[2])))
    while True:
        sock, _ = server.accept()
        if os.fork() == 0:
            server.close()
            serve(sock, int(sys.argv[3]))
            os._exit(0)
        sock.close()


if __name__ == "__main__":
    main()

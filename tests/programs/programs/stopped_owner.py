"""A child that uses a connection whose owner is stopped: stopped_owner.py ADDRESS PORT.

The child is another program. It says how many milliseconds its calls have taken and which values it
has found; when it has ended the owner says the values that it finds itself."""

import os
import signal
import socket
import struct
import subprocess
import sys
import time

NODELAY = (socket.IPPROTO_TCP, socket.TCP_NODELAY)
IDLE = (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE)
RCVTIMEO = (socket.SOL_SOCKET, socket.SO_RCVTIMEO)
LIMIT_MS = 300
# More messages than wait in a socket.
CALLS = 1000


def use(sock):
    """Calls that do not wait on the kernel."""
    sock.setsockopt(*NODELAY, 1)
    for number in range(CALLS):
        sock.setsockopt(*IDLE, 100 + number % 50)
        sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
        try:
            sock.recv(1, socket.MSG_DONTWAIT)
        except BlockingIOError:
            pass
    sock.setsockopt(*IDLE, 77)
    return sock.getsockopt(*IDLE), int(sock.getsockopt(*NODELAY) != 0)


def child(number):
    sock = socket.socket(fileno=number)
    owner = os.getppid()
    os.kill(owner, signal.SIGSTOP)
    time.sleep(0.1)
    begun = time.monotonic()
    found = use(sock)
    spent = round((time.monotonic() - begun) * 1000)
    os.kill(owner, signal.SIGCONT)
    time.sleep(0.5)
    limit = struct.unpack("ll", sock.getsockopt(*RCVTIMEO, 16))
    begun = time.monotonic()
    try:
        sock.recv(1)
    except BlockingIOError:
        pass
    waited = round((time.monotonic() - begun) * 1000)
    sock.sendall(("%d %d %d %d %d " % (spent, *found, limit[1] // 1000, waited)).encode())


def main(address, port):
    with socket.create_server((address, int(port))) as server:
        while True:
            sock, _ = server.accept()
            if sock.recv(1):
                fd = sock.fileno()
                sock.setsockopt(*RCVTIMEO, struct.pack("ll", 0, LIMIT_MS * 1000))
                subprocess.run([sys.executable, __file__, str(fd)], pass_fds=[fd], check=True)
                idle, no_delay = sock.getsockopt(*IDLE), sock.getsockopt(*NODELAY)
                sock.sendall(f"{idle} {int(no_delay != 0)}\n".encode())
            sock.close()


if len(sys.argv) == 2:
    child(int(sys.argv[1]))
else:
    main(*sys.argv[1:])

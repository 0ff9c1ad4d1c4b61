"""A child that uses a connection whose owner is stopped: stopped_owner.py ADDRESS PORT.

The child is another program. It says how many milliseconds its calls have taken and which values
it has found; when it has ended the owner says the values that it finds itself. Asked by `e` or `b`,
the child ends, or becomes another program, while the owner is stopped, which goes on a second
later."""

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


def leave(number, way):
    """Ends, or becomes another program, with all said to the owner and nothing taken by it."""
    sock = socket.socket(fileno=number)
    owner = os.getppid()
    subprocess.Popen(["sh", "-c", f"sleep 1; kill -CONT {owner}"])
    os.kill(owner, signal.SIGSTOP)
    time.sleep(0.1)
    use(sock)
    sock.sendall(b"said ")
    # It is open until the end.
    sock.detach()
    if way == "b":
        os.execv("/bin/sleep", ["sleep", "0.1"])


def main(address, port):
    with socket.create_server((address, int(port))) as server:
        while True:
            sock, _ = server.accept()
            if way := sock.recv(1).decode():
                fd = sock.fileno()
                sock.setsockopt(*RCVTIMEO, struct.pack("ll", 0, LIMIT_MS * 1000))
                command = [sys.executable, __file__, str(fd), way]
                subprocess.run(command, pass_fds=[fd], check=True)
                # What was said while the owner was stopped is heard within moments.
                time.sleep(0.2)
                idle, no_delay = sock.getsockopt(*IDLE), sock.getsockopt(*NODELAY)
                sock.sendall(f"{idle} {int(no_delay != 0)}\n".encode())
            sock.close()


match sys.argv[1:]:
    case [number, "x"]:
        child(int(number))
    case [number, "e" | "b" as way]:
        leave(int(number), way)
    case [address, port]:
        main(address, port)

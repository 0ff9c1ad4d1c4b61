"""Accepts, queues data for the peer, and ends as requested.
Usage: sender.py PORT BYTES HOW [WAY]
HOW: exit, _exit, sigterm, sigint, sigkill, sleep
WAY: the connection's packets go out by a mark of 7, with a type of service of 0x10 (tos), with the
priority 3, or by the device eth1 as its listener's"""

import hashlib
import os
import signal
import socket
import sys
import time

port, size, how = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
way = sys.argv[4] if len(sys.argv) > 4 else None
listener = socket.create_server(("0.0.0.0", port))
if way == "device":
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"eth1")
sock, _ = listener.accept()
if way == "mark":
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_MARK, 7)
if way == "tos":
    sock.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, 0x10)
if way == "priority":
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_PRIORITY, 3)
sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 * 1024 * 1024)
data = hashlib.shake_256(b"queued").digest(size)
sock.setblocking(False)
sent = 0
deadline = time.monotonic() + 3
while sent < size and time.monotonic() < deadline:
    try:
        sent += sock.send(data[sent:])
    except BlockingIOError:
        # A larger buffer may be a moment away.
        if how != "sleep" and sent > 100_000:
            break
        time.sleep(0.01)
print(sent, flush=True)
if how == "exit":
    sys.exit(0)
if how == "_exit":
    os._exit(0)
if how == "sigkill":
    os.kill(os.getpid(), signal.SIGKILL)
if how in ("sigterm", "sigint"):
    number = {"sigterm": signal.SIGTERM, "sigint": signal.SIGINT}[how]
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
time.sleep(60)

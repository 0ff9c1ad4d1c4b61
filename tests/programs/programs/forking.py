"""A child process for every connection; the parent keeps none. Usage: forking.py PORT HOW [FILE]

HOW: lines    answers each line, blocking
     poll     the same, non-blocking and with poll
     epoll    the same with a set of epoll that it makes first
     caged    the same as poll, in a sandbox that kills who makes a descriptor, as sshd's
     narrow   the same as lines, in an address space that is limited to 400 MB, as vsftpd's
     session  is nobody's, without threads, and has the connection as its three standard streams, as
              vsftpd's; connects to the port in the first line, then says so
     half     answers with the length of all that came, after the peer's end
     http     answers one request of HTTP/1.0 with 5,000 bytes
     bulk     sends 2 MB and ends
     rude     reads nothing of what has come and ends
     late     the same, and the parent closes its copy after that
     sleep    answers one line with its process id and sleeps
     keep     the parent keeps its copy; the child ends after one line
     echo     sends everything back
     prefork  six children accept and tell their number; the parent waits for them
     ended    tells how its connection ends, by what it reads and by SO_ERROR
     ended_poll the same, non-blocking and with poll
     long     as the first byte says: sends until FILE is there (d), echoes with epoll (e), poll (p)
              or blocking (b), or reads until the peer's end and answers with the sum of all that
              came (u)
     exec     becomes cat, with the connection as input and output
     run      a child of the child runs cat on the connection"""

import ctypes
import errno
import hashlib
import mmap
import os
import resource
import select
import signal
import socket
import struct
import subprocess
import sys
import time

SIZE = 2_000_000


def lines(sock):
    with sock, sock.makefile("rw") as stream:
        for line in stream:
            stream.write(f"child says {line}")
            stream.flush()


def poll(sock):
    sock.setblocking(False)
    poller = select.poll()
    poller.register(sock, select.POLLIN)
    while True:
        assert poller.poll(10_000), "nothing came"
        try:
            data = sock.recv(4096)
        except BlockingIOError:
            continue
        if not data:
            return
        sock.send(b"child says " + data)


def epoll(sock):
    sock.setblocking(False)
    waits = select.epoll()
    waits.register(sock, select.EPOLLIN)
    while waits.poll(10) == [(sock.fileno(), select.EPOLLIN)]:
        if not (data := sock.recv(65536)):
            return
        while data:
            try:
                data = data[sock.send(data) :]
            except BlockingIOError:
                select.select([], [sock], [], 10)


def ended(sock, waits=False):
    sock.setblocking(not waits)
    poller = select.poll()
    poller.register(sock, select.POLLIN)
    told = []
    while len(told) < 2:
        if waits:
            poller.poll(10_000)
        try:
            data = sock.recv(100)
            told += ["end"] if not data else []
        except BlockingIOError:
            continue
        except OSError as error:
            told.append(errno.errorcode[error.errno])
    print(*told, sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR), flush=True)


def ended_poll(sock):
    ended(sock, True)


def http(sock):
    with sock, sock.makefile("rb") as stream:
        while stream.readline().strip():
            pass
        sock.sendall(b"HTTP/1.0 200 OK\r\nContent-Length: 5000\r\n\r\n" + bytes(5000))


def caged(sock):
    forbid(EVENTFD2, EPOLL_CREATE1, SOCKET)
    poll(sock)


def narrow(sock):
    resource.setrlimit(resource.RLIMIT_AS, (400 << 20, 400 << 20))
    mmap.mmap(-1, 32 << 20).close()
    lines(sock)


def session(sock):
    for number in range(3):
        os.dup2(sock.fileno(), number)
    port = int(sock.makefile().readline())
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
    resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
    with socket.create_connection((sock.getpeername()[0], port)) as data:
        data.sendall(b"data")
    sock.sendall(b"sent\n")


EVENTFD2, EPOLL_CREATE1, SOCKET = 290, 291, 41


def forbid(*calls):
    """A filter (seccomp(2)) that ends the process at one of these system calls of x86-64."""
    load, jump_if, end = 0x20, 0x15, 0x06
    code = struct.pack("HBBI", load, 0, 0, 0)
    for left, call in zip(range(len(calls), 0, -1), calls):
        code += struct.pack("HBBI", jump_if, left, 0, call)
    code += struct.pack("HBBI", end, 0, 0, 0x7FFF_0000) + struct.pack(
        "HBBI", end, 0, 0, 0x8000_0000
    )
    buffer = ctypes.create_string_buffer(code)
    program = struct.pack("HxxxxxxQ", len(code) // 8, ctypes.addressof(buffer))
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.prctl(38, 1, 0, 0, 0) == 0, "PR_SET_NO_NEW_PRIVS"
    assert libc.prctl(22, 2, program, 0, 0) == 0, "PR_SET_SECCOMP"


def echo(sock):
    while chunk := sock.recv(65536):
        sock.sendall(chunk)


def half(sock):
    count = 0
    while chunk := sock.recv(65536):
        count += len(chunk)
    sock.sendall(f"{count} bytes\n".encode())


def rude(sock):
    poller = select.poll()
    poller.register(sock, select.POLLIN)
    poller.poll()
    sock.recv(1)


def sleep(sock):
    if not sock.recv(100):
        return
    sock.sendall(f"{os.getpid()}\n".encode())
    time.sleep(60)


def keep(sock):
    sock.sendall(b"child says " + sock.recv(100))


def become_cat(sock):
    for number in (0, 1):
        os.dup2(sock.fileno(), number)
    sock.close()
    os.execv("/bin/cat", ["cat"])


def run_cat(sock):
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    subprocess.run(["/bin/cat"], stdin=sock, stdout=sock, check=True)


def bulk(sock):
    sock.sendall(hashlib.shake_256(b"bulk").digest(SIZE))


def long(sock):
    ways = {b"d": send_long, b"e": epoll, b"p": poll, b"b": echo, b"u": digest}
    if way := ways.get(sock.recv(1)):
        way(sock)


BLOCK = hashlib.shake_256(b"block").digest(65536)


def send_long(sock):
    while not os.path.exists(sys.argv[3]):
        sock.sendall(BLOCK)
    sock.sendall(b"end")


def digest(sock):
    whole = hashlib.blake2b()
    while chunk := sock.recv(65536):
        whole.update(chunk)
    sock.sendall(whole.digest())


WAYS = {"exec": become_cat, "run": run_cat, "late": rude}

signal.signal(signal.SIGCHLD, signal.SIG_IGN)
listener = socket.create_server(("0.0.0.0", int(sys.argv[1])))
how = sys.argv[2]
kept = []


def prefork():
    for _ in range(6):
        if os.fork() == 0:
            # PR_SET_PDEATHSIG: they end with their parent.
            ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)
            while True:
                sock, _ = listener.accept()
                sock.sendall(str(os.getpid()).encode())
                sock.close()
    signal.pause()


if how == "prefork":
    prefork()
while True:
    sock, _ = listener.accept()
    if os.fork() == 0:
        listener.close()
        WAYS.get(how, globals().get(how))(sock)
        os._exit(0)
    if how == "keep":
        kept.append(sock)
    elif how == "late":
        time.sleep(0.2)
        sock.close()
    else:
        sock.close()

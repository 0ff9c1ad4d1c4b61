"""Two programs that have a connection from each other. Usage:

    handing.py server PORT PATH CASE    accepts connections and sends them to the worker at PATH
    handing.py worker PATH CASE         uses what it is sent

CASE says what becomes of it:
    closed    the server closes its own number at once
    ends      the server ends at once
    read      the server has read a line, and more has come, before it sends the connection
    both      both answer in turns
    kept      the worker never touches it, and the server goes on
    circle    it goes to the worker, back, and to the worker again
    again     it is sent twice in one message
    much      as closed, and lines are long
    passed    the worker sends it on to a program of its own
    datagrams a UDP socket that the server has answered on"""

import os
import signal
import socket
import subprocess
import sys


def read_line(sock):
    line = b""
    while not line.endswith(b"\n"):
        byte = sock.recv(1)
        if not byte:
            break
        line += byte
    return line


def answer(sock, line):
    sock.sendall(b"%d " % os.getpid() + line)


def serve(sock):
    """Answers lines until the end of the stream."""
    while line := read_line(sock):
        answer(sock, line)
    sock.close()


def send(way, sock, what=b"c"):
    fds = [sock.fileno()] * (2 if what == b"2" else 1)
    socket.send_fds(way, [what], fds)


def receive(way):
    what, fds, _, _ = socket.recv_fds(way, 1, 2)
    return what, [socket.socket(fileno=fd) for fd in fds]


def serve_case(way, sock, case):
    if case in ("read", "both", "kept"):
        answer(sock, read_line(sock))
    if case == "read":
        # Until the client has sent the rest.
        while len(sock.recv(1000, socket.MSG_PEEK)) < 10:
            pass
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    send(way, sock, b"2" if case == "again" else b"c")
    if case == "ends":
        os._exit(0)
    if case == "both":
        # The worker has answered one, this program the next.
        while way.recv(1):
            line = read_line(sock)
            answer(sock, line)
            way.sendall(b"x")
        return sock.close()
    if case == "kept":
        return serve(sock)
    sock.close()
    if case == "circle":
        _, (sock,) = receive(way)
        answer(sock, read_line(sock))
        send(way, sock)
        sock.close()


def server(port, path, case):
    ways = socket.socket(socket.AF_UNIX)
    ways.bind(path)
    ways.listen()
    kind = socket.SOCK_DGRAM if case == "datagrams" else socket.SOCK_STREAM
    sock = socket.socket(socket.AF_INET, kind)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.bind(("0.0.0.0", port))
    if case == "datagrams":
        data, peer = sock.recvfrom(2048)
        sock.sendto(b"%d " % os.getpid() + data, peer)
        way, _ = ways.accept()
        send(way, sock)
        sock.close()
        way.recv(1)
        return
    sock.listen()
    way, _ = ways.accept()
    print("ready", flush=True)
    while True:
        serve_case(way, sock.accept()[0], case)


def work_with(way, sock, case):
    if case == "read":
        assert not sock.getblocking() or not os.get_blocking(sock.fileno()), "it blocks"
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY), "an option"
        os.set_blocking(sock.fileno(), True)
        sock.settimeout(None)
    if case == "both":
        for _ in range(20):
            answer(sock, read_line(sock))
            way.sendall(b"x")
            way.recv(1)
        return sock.close()
    if case == "kept":
        return signal.pause()
    if case == "circle":
        answer(sock, read_line(sock))
        send(way, sock)
        sock.close()
        _, (sock,) = receive(way)
    if case == "passed":
        ours, theirs = socket.socketpair()
        words = [sys.executable, __file__, "worker", str(theirs.fileno()), "closed"]
        subprocess.Popen(words, pass_fds=[theirs.fileno()])
        theirs.close()
        answer(sock, read_line(sock))
        send(ours, sock)
        return sock.close()
    if case == "much":
        with sock, sock.makefile("rb") as lines:
            for line in lines:
                answer(sock, line)
        return
    serve(sock)


def worker(path, case):
    if path.isdigit():
        way = socket.socket(fileno=int(path))
    else:
        way = socket.socket(socket.AF_UNIX)
        way.connect(path)
    while True:
        what, socks = receive(way)
        if not what:
            return
        if case == "datagrams":
            while True:
                data, peer = socks[0].recvfrom(2048)
                socks[0].sendto(b"%d " % os.getpid() + data, peer)
        if case == "again":
            first = socks.pop(0)
            answer(first, read_line(first))
            first.close()
        work_with(way, socks[0], case)


if __name__ == "__main__":
    if sys.argv[1] == "server":
        server(int(sys.argv[2]), *sys.argv[3:])
    else:
        worker(*sys.argv[2:])

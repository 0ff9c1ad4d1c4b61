"""A server that becomes another program with its connection: `becomes.py PORT HOW`. `itself`: this
one, which finds the connection under its number; `cat`: its standard streams are the connection;
`child`: a child does, once the connection has gone to it; `again`: itself, three times."""

import os
import socket
import sys

TURNS = 20


def serve(sock, turns=None):
    """Answers lines until their end, or so many."""
    stream = sock.makefile("rb", buffering=0)
    while turns != 0 and (line := stream.readline()):
        sock.sendall(line)
        turns = turns and turns - 1


def become(sock, how):
    if how == "cat":
        os.dup2(sock.fileno(), 0)
        os.dup2(sock.fileno(), 1)
        os.execv("/bin/cat", ["cat"])
    os.set_inheritable(sock.fileno(), True)
    os.execv(sys.executable, [sys.executable, "-u", __file__, "fd", how, str(sock.fileno())])


def main(port, how, fd=None):
    if fd is not None:
        sock = socket.socket(fileno=int(fd))
        assert sock.family == socket.AF_INET and sock.getpeername()[0] == "10.77.0.1", sock
        if how.startswith("again"):
            serve(sock, TURNS)
            return become(sock, how[: -len("again")] or "itself")
        return serve(sock)
    with socket.create_server(("0.0.0.0", int(port))) as server:
        print("listening", flush=True)
        sock, _ = server.accept()
    if how == "child" and os.fork():
        sock.close()
        _, status = os.wait()
        print("child", os.waitstatus_to_exitcode(status), flush=True)
        return
    serve(sock, TURNS)
    become(sock, how)


main(*sys.argv[1:])

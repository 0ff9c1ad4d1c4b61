"""Gives connections to other programs. Usage: passing.py PORT HOW

HOW: rights     a worker program gets each connection over a unix socket
     listener   the worker gets the listening socket and accepts itself
     bound      the worker gets a socket that is bound and does not block, and listens itself
     datagrams  the worker gets a bound UDP socket and answers
     pickled    a process of multiprocessing gets each connection
     spawn      posix_spawn starts cat, with the connection as input and output
     inherit    as spawn, the connection being the parent's own input and output
     names      posix_spawn starts a program that tells the connection's addresses
     worker     (the worker of the first four)"""

import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import threading


def serve(sock):
    """Sends the peer's address, then answers lines."""
    with sock, sock.makefile("rw") as stream:
        for line in stream:
            host, port = sock.getpeername()
            own = sock.getsockname()[1]
            stream.write(f"{host} {port} {own} {os.getpid()} {line}")
            stream.flush()


def answer_datagrams(sock):
    while True:
        data, peer = sock.recvfrom(2048)
        sock.sendto(b"%d %s" % (os.getpid(), data), peer)


def work():
    way = socket.socket(fileno=os.dup(0))
    while True:
        what, fds, _, _ = socket.recv_fds(way, 1, 16)
        if not what:
            return
        for fd in fds:
            sock = socket.socket(fileno=fd)
            if what == b"c":
                serve(sock)
                continue
            if what == b"u":
                answer_datagrams(sock)
            if what == b"b":
                assert not os.get_blocking(fd), "it blocks"
                os.set_blocking(fd, True)
                sock.listen()
            while True:
                serve(sock.accept()[0])


def start_worker():
    ours, theirs = socket.socketpair()
    # Until a process waits for it.
    start_worker.child = subprocess.Popen(
        [sys.executable, "-u", __file__, "0", "worker"], stdin=theirs
    )
    theirs.close()
    return ours


def rights(listener):
    worker = start_worker()
    while True:
        sock, _ = listener.accept()
        socket.send_fds(worker, [b"c"], [sock.fileno()])
        sock.close()


def pass_listener(listener):
    worker = start_worker()
    socket.send_fds(worker, [b"l"], [listener.fileno()])
    listener.close()
    while True:
        signal.pause()


def pass_bound(kind, what):
    worker = start_worker()
    with socket.socket(socket.AF_INET, kind) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.setblocking(False)
        sock.bind(("0.0.0.0", int(sys.argv[1])))
        if kind == socket.SOCK_DGRAM:
            sock.setblocking(True)
            print("bound", flush=True)
        socket.send_fds(worker, [what], [sock.fileno()])
    while True:
        signal.pause()


def unpickle(queue):
    while True:
        serve(queue.get())


def pickled(listener):
    queue = multiprocessing.get_context("spawn").Queue()
    multiprocessing.get_context("spawn").Process(
        target=unpickle, args=(queue,), daemon=True
    ).start()
    while True:
        queue.put(listener.accept()[0])


def spawn(listener):
    while True:
        sock, _ = listener.accept()
        actions = [(os.POSIX_SPAWN_DUP2, sock.fileno(), number) for number in (0, 1)]
        os.posix_spawn("/bin/cat", ["cat"], os.environ, file_actions=actions)
        sock.close()


def inherit(listener):
    nothing = os.open("/dev/null", os.O_RDWR)
    while True:
        sock, _ = listener.accept()
        for number in (0, 1):
            os.dup2(sock.fileno(), number)
        sock.close()
        os.posix_spawn("/bin/cat", ["cat"], os.environ)
        for number in (0, 1):
            os.dup2(nothing, number)


TELL = (
    "import socket; s = socket.socket(fileno=0); print(*s.getpeername(), s.getsockname()[1],"
    " s.family.name)"
)


def names(listener):
    while True:
        sock, _ = listener.accept()
        actions = [(os.POSIX_SPAWN_DUP2, sock.fileno(), number) for number in (0, 1)]
        os.posix_spawn(sys.executable, ["python3", "-c", TELL], os.environ, file_actions=actions)
        sock.close()


def end_on_sigterm():
    """With all that this program has started. A handler in Python would wait for the main
    thread's next step, and that thread may just be about to accept; only the descriptor is
    written at once."""
    told, tell = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    os.set_blocking(told, True)
    signal.signal(signal.SIGTERM, lambda *_: None)
    signal.set_wakeup_fd(tell)
    threading.Thread(target=end_when, args=(told,), daemon=True).start()


def end_when(told):
    os.read(told, 1)
    os.killpg(0, signal.SIGTERM)
    os._exit(0)


def main():
    how = sys.argv[2]
    if how == "worker":
        return work()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    end_on_sigterm()
    if how == "bound":
        pass_bound(socket.SOCK_STREAM, b"b")
    if how == "datagrams":
        pass_bound(socket.SOCK_DGRAM, b"u")
    listener = socket.create_server(("0.0.0.0", int(sys.argv[1])))
    ways = {"rights": rights, "listener": pass_listener, "pickled": pickled}
    ways |= {"spawn": spawn, "inherit": inherit, "names": names}
    ways[how](listener)


if __name__ == "__main__":
    main()

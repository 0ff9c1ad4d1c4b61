"""Makes the requested socket calls on the stack under test; each line in is a JSON list of calls,
each line out one of outcomes.

puppet.py PATH       listens on the unix socket PATH for its master"""

import errno
import json
import select
import socket
import struct
import sys

import datagrams

SOCKETS = {}


def main():
    door = socket.socket(socket.AF_UNIX)
    door.bind(sys.argv[1])
    door.listen(1)
    master, _ = door.accept()
    poll = select.poll()
    poll.register(master, select.POLLIN)
    buffer = b""
    while True:
        # Here an in-process stack gets its turns.
        poll.poll()
        chunk = master.recv(1 << 20)
        if not chunk:
            return
        buffer += chunk
        while b"\n" in buffer:
            line, _, buffer = buffer.partition(b"\n")
            answers = [outcome(name, call, words) for name, call, *words in json.loads(line)]
            master.sendall(json.dumps(answers).encode() + b"\n")


def outcome(name, call, words):
    try:
        return CALLS[call](name, *words)
    except OSError as error:
        return errno.errorcode.get(error.errno, str(error.errno))
    except KeyError:
        return "no socket"


def listen(name, address, port, backlog):
    sock = fresh()
    sock.bind((address, port))
    sock.listen(backlog)
    SOCKETS[name, "listener"] = sock
    return "ok"


def accept(name):
    sock, _ = SOCKETS[name, "listener"].accept()
    sock.setblocking(False)
    SOCKETS[name, "stream"] = sock
    return "ok"


def connect(name, address, port, peer, peer_port):
    sock = fresh()
    sock.bind((address, port))
    SOCKETS[name, "stream"] = sock
    sock.connect((peer, peer_port))
    return "ok"


def fresh():
    sock = socket.socket()
    sock.setblocking(False)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    return sock


def send(name, count):
    return SOCKETS[name, "stream"].send(b"x" * count, socket.MSG_NOSIGNAL)


def receive(name, count):
    return len(SOCKETS[name, "stream"].recv(count))


def shutdown(name, how):
    SOCKETS[name, "stream"].shutdown(how)
    return "ok"


def close(name, which):
    SOCKETS.pop((name, which)).close()
    return "ok"


def linger(name, seconds):
    SOCKETS[name, "stream"].setsockopt(
        socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, seconds)
    )
    return "ok"


def option(name, level, number, value):
    SOCKETS[name, "stream"].setsockopt(level, number, value)
    return "ok"


def error(name):
    number = SOCKETS[name, "stream"].getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    return errno.errorcode.get(number, number)


def events(name):
    poll = select.poll()
    poll.register(SOCKETS[name, "stream"], select.POLLIN | select.POLLOUT | select.POLLRDHUP)
    names = {
        select.POLLIN: "in",
        select.POLLOUT: "out",
        select.POLLRDHUP: "rdhup",
        select.POLLHUP: "hup",
        select.POLLERR: "err",
    }
    found = poll.poll(0)
    return " ".join(text for bit, text in names.items() if found and found[0][1] & bit)


def state(name):
    """tcpi_state of TCP_INFO: 1 established … 11 closing."""
    return SOCKETS[name, "stream"].getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 8)[0]


CALLS = {
    function.__name__: function
    for function in (
        listen,
        accept,
        connect,
        send,
        receive,
        shutdown,
        close,
        linger,
        option,
        error,
        events,
        state,
    )
} | datagrams.CALLS

if __name__ == "__main__":
    main()

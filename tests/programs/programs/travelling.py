"""Connections that go to another process in any state: travelling.py ADDRESS PORT.

The first line of a connection says who goes on with it and in which state, `WHO STATE`. `exec`:
this process becomes another program; `orphan`: a child whose maker has ended; `threaded`: one whose
maker had threads; `ended`: one whose maker a signal ends; `taker`: a child which has used the
connection for a while and kills its maker; `confined`: this process with a filter for system calls;
`branching`: children of a child that has threads. `fin`: the peer has shut its direction, and
nothing of it has been read; `shut`: this side has shut its own direction; `hasty`: as `shut`, as
soon as no more found room; `both`: both; `full`: the peer takes no more; `unread`: much has come
and has not been read; `counted` (`taker` alone): as `unread`, and the child counts the bytes;
`over`: both sides have ended, the peer first, and nothing has been read; `waited`: as `over`, this
side first; `reset`: the peer has reset the connection, and nothing has been read; `urgent`,
`inline`, `taken`: among bytes that have not been read is an urgent one, with SO_OOBINLINE, or taken
already; `outgoing PORT`: not this connection, but one that is made to that port of the peer's
without waiting for it in connect(); `plain`: none of these; `writing` (`threaded` alone): a thread
of the maker's writes until its end; `alone` (`branching` alone): the child has no threads."""

import contextlib
import ctypes
import errno
import fcntl
import hashlib
import os
import select
import signal
import socket
import struct
import sys
import termios
import threading
import time

SIZE = 300_000
MUCH = {"unread": 200_000, "counted": 200_000}
SIOCATMARK = 0x8905
# Grandchildren of `branching`.
BRANCHES = 200
# The urgent byte.
MARK = 5000
URGENT = ("urgent", "inline", "taken")
# Bytes that are sent on a connection which ends then.
ENDED = 20_000


def data_of(name, size):
    return hashlib.shake_256(name.encode()).digest(size)


def read_line(sock):
    line = b""
    while not line.endswith(b"\n"):
        byte = sock.recv(1)
        assert byte, line
        line += byte
    return line.decode().strip()


def unread(sock):
    count = fcntl.ioctl(sock, termios.FIONREAD, b"\0" * 4)
    return struct.unpack("i", count)[0]


def await_unread(sock, count):
    end = time.monotonic() + 10
    while unread(sock) < count:
        assert time.monotonic() < end, f"{unread(sock)} of {count} bytes have come"
        time.sleep(0.01)


def send_until_full(sock, patience=20):
    """Returns the number of bytes that the socket has taken."""
    sock.setblocking(False)
    data, sent, quiet = data_of("down", 8 * SIZE), 0, 0
    while quiet < patience and sent < len(data):
        try:
            sent += sock.send(data[sent : sent + 50_000])
            quiet = 0
        except BlockingIOError:
            quiet += 1
            if quiet < patience:
                time.sleep(0.01)
    sock.setblocking(True)
    return sent


def bring_into(sock, state, waits=True):
    """Returns the number of bytes that have been sent."""
    if state == "waited":
        sock.sendall(data_of("down", ENDED))
    elif state in ("reset", *URGENT):
        sock.sendall(b"have")
    if state == "waited":
        sock.shutdown(socket.SHUT_WR)
    if state == "counted":
        waits = True
    if not waits and state in (*MUCH, "fin", "both", "over", "waited", "reset"):
        time.sleep(0.3)
    elif state in ("fin", "both", "over", "waited", "reset"):
        poll = select.poll()
        poll.register(sock, select.POLLRDHUP)
        assert poll.poll(10_000), "the end of the peer's direction"
    if state == "over":
        sock.sendall(data_of("down", ENDED))
        sock.shutdown(socket.SHUT_WR)
    if state in ("over", "waited"):
        # The last acknowledgements.
        time.sleep(0.1)
        return ENDED
    if state in ("shut", "both", "hasty"):
        sent = send_until_full(sock, 1 if state == "hasty" else 20)
        sock.shutdown(socket.SHUT_WR)
        return sent
    elif state == "full":
        return send_until_full(sock)
    elif state in URGENT:
        if waits:
            await_unread(sock, MARK)
            # The urgent byte.
            time.sleep(0.1)
        if state == "taken":
            assert sock.recv(1, socket.MSG_OOB) == data_of("up", MARK + 1)[MARK:]
        elif state == "inline":
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_OOBINLINE, 1)
    elif state in MUCH and waits:
        await_unread(sock, MUCH[state])
    return 0


def use_for_a_while(sock):
    """Returns the bytes that have been read one by one."""
    data = b""
    for _ in range(100):
        try:
            data += sock.recv(1, socket.MSG_DONTWAIT)
        except BlockingIOError:
            pass
        time.sleep(0.01)
    return data


def is_at_mark(sock):
    return struct.unpack("i", fcntl.ioctl(sock, SIOCATMARK, b"\0" * 4))[0] == 1


def read_urgent(sock, state, data):
    """Reads up to the urgent byte, after `data`, and it. Returns all of them."""
    if len(data) < 100:
        data += use_for_a_while(sock)
    while not is_at_mark(sock):
        assert len(data) < MARK, f"{len(data)} bytes without a mark"
        data += sock.recv(MARK)
    assert len(data) == MARK, f"a mark after {len(data)} bytes"
    urgent = data_of("up", MARK + 1)[MARK:]
    if state == "urgent":
        assert sock.recv(1, socket.MSG_OOB) == urgent
    try:
        sock.recv(1, socket.MSG_OOB)
        print("the urgent byte comes twice", flush=True)
    except OSError as error:
        assert error.errno == errno.EINVAL, error
    return data if state == "inline" else data + urgent


def go_on(sock, state, sent, first=b""):
    """Reads all that comes, and sends the rest unless this direction has been shut."""
    print(f"goes on {sent} bytes", flush=True)
    if state == "writing":
        while sock.recv(65536):
            pass
        return
    if state == "full":
        # The peer reads before it writes.
        sock.sendall(data_of("down", 8 * SIZE + SIZE)[sent:])
    if state in URGENT:
        first = read_urgent(sock, state, first)
    digest, count = hashlib.sha256(first), len(first)
    try:
        while data := sock.recv(65536):
            digest.update(data)
            count += len(data)
    except ConnectionResetError:
        print("was reset", flush=True)
    if state in ("shut", "hasty", "both", "over", "waited", "reset"):
        try:
            sock.send(b"more")
            print("it may be written to", flush=True)
        except BrokenPipeError:
            pass
    elif state != "full":
        sock.sendall(data_of("down", SIZE))
    print(f"got {count} {digest.hexdigest()}", flush=True)
    sock.close()


def confine():
    """Forbids `socket` (EPERM), under a filter that permits all else."""
    libc = ctypes.CDLL(None, use_errno=True)
    code = [(0x20, 0, 0, 0), (0x15, 0, 1, 41), (6, 0, 0, 0x50001), (6, 0, 0, 0x7FFF0000)]
    program = b"".join(struct.pack("HBBI", *one) for one in code)
    place = ctypes.create_string_buffer(program)
    filter = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", 4, ctypes.addressof(place)))
    assert libc.prctl(38, 1, 0, 0, 0) == 0
    assert libc.prctl(22, 2, filter, 0, 0) == 0, ctypes.get_errno()


def hand_over(sock, who, state, sent):
    if who == "exec":
        sock.set_inheritable(True)
        words = [sys.executable, "-u", __file__, "fd", sock.fileno(), state, sent]
        os.execv(sys.executable, [str(word) for word in words])
    elif who in ("orphan", "threaded", "ended"):
        maker = os.getpid()
        if who == "threaded":
            # In one call: as the process ends, no thread of Python's gets to make another.
            work, input = time.sleep, 60
            if state == "writing":
                work, input = sock.send, data_of("down", SIZE) * 500
            threading.Thread(target=work, args=(input,), daemon=True).start()
            time.sleep(0.05)
        if os.fork() != 0:
            if who == "ended":
                os.kill(maker, signal.SIGTERM)
            os._exit(0)
        end = time.monotonic() + 5
        while os.getppid() == maker:
            if time.monotonic() > end:
                print("the maker has not ended", flush=True)
                os._exit(1)
            time.sleep(0.01)
    elif who == "confined":
        confine()
    go_on(sock, state, sent)


def take(sock, state):
    maker = os.getpid()
    if os.fork() != 0:
        sock.close()
        while True:
            time.sleep(1)
    sent = bring_into(sock, state, False)
    first = use_for_a_while(sock)
    os.kill(maker, signal.SIGKILL)
    end = time.monotonic() + 5
    while os.getppid() == maker and time.monotonic() < end:
        time.sleep(0.01)
    go_on(sock, state, sent, first)


def branch(sock, state):
    """Has grandchildren write a byte each while a thread of the child looks at the connection, or
    while the child takes it over."""
    maker = os.getpid()
    if os.fork() != 0:
        sock.close()
        while True:
            time.sleep(1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)

    def look():
        while True:
            with contextlib.suppress(BlockingIOError):
                sock.recv(1, socket.MSG_DONTWAIT | socket.MSG_PEEK)

    if state != "alone":
        threading.Thread(target=look, daemon=True).start()
        time.sleep(0.05)
    # Two threads use it: it stays its maker's.
    sock.send(b"x")
    for number in range(BRANCHES):
        if state == "alone" and number % 10 == 0:
            sock.send(b"x")
        child = os.fork()
        if child == 0:
            try:
                sock.send(b"x")
            except OSError as error:
                print(f"a grandchild: {error}", file=sys.stderr, flush=True)
                os._exit(1)
            os._exit(0)
        os.waitpid(child, 0)
    sock.send(b".")
    while sock.recv(100):
        pass
    os.kill(maker, signal.SIGKILL)
    os._exit(0)


def connect_back(sock, port):
    made = socket.socket(sock.family)
    made.setblocking(False)
    made.connect_ex((sock.getpeername()[0], int(port)))
    poll = select.poll()
    poll.register(made, select.POLLOUT)
    assert poll.poll(10_000)
    assert made.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0
    made.setblocking(True)
    return made


def serve(first):
    who, state, *port = read_line(first).split()
    sock = connect_back(first, port[0]) if port else first
    if who == "taker":
        return take(sock, state)
    if who == "branching":
        return branch(sock, state)
    hand_over(sock, who, state, bring_into(sock, state))


def main(address, port):
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket() as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2 * MUCH["unread"])
        server.bind((address, int(port)))
        server.listen()
        if os.fork() != 0:
            # Keeps the standard streams open until the test ends.
            server.close()
            while True:
                time.sleep(1)
        sock, _ = server.accept()
    serve(sock)


if sys.argv[1] == "fd":
    go_on(socket.socket(fileno=int(sys.argv[2])), sys.argv[3], int(sys.argv[4]))
else:
    main(*sys.argv[1:])

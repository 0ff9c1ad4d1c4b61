"""A UDP socket that its parent has used, in a forked child. Usage: inherited_udp.py OWN PEER PORT

PEER echoes datagrams at PORT, and PORT + 1 is unused. Prints the results of each process."""

import errno
import os
import select
import socket
import struct
import sys
import time

OWN, PEER, PORT = sys.argv[1], sys.argv[2], int(sys.argv[3])
GROUP = "239.1.2.3"
SO_ATTACH_FILTER = 26
IP_MTU_DISCOVER, IP_PMTUDISC_DO = 10, 2


def used(port=0):
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.settimeout(3)
    sock.bind(("0.0.0.0", port))
    ask(sock, b"first")
    return sock


def ask(sock, text, port=PORT):
    sock.sendto(text, (PEER, port))
    assert sock.recv(2000) == text


def told(call, *words):
    try:
        return call(*words)
    except OSError as error:
        return errno.errorcode.get(error.errno, "timeout")


def child(body):
    """Runs `body` in a child, and waits for its end."""
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        try:
            body()
            sys.stdout.flush()
        finally:
            os._exit(0)
    os.waitpid(pid, 0)


def errors():
    sock = used()
    print("connect", told(sock.connect, (PEER, PORT + 1)))

    def sends():
        print("closed", told(sock.send, b"x"), end=" ")
        time.sleep(0.3)
        print(told(sock.send, b"x"), told(sock.getsockopt, socket.SOL_SOCKET, socket.SO_ERROR))
        time.sleep(0.3)
        print("waits", told(sock.recv, 100))

    child(sends)
    sock = used()

    def refused():
        print("long", told(sock.sendto, bytes(65_508), (PEER, PORT)))
        print("broadcast", told(sock.sendto, b"x", ("255.255.255.255", PORT)))
        print("port 0", told(sock.sendto, b"x", (PEER, 0)))
        sock.setsockopt(socket.IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_DO)
        print("uncut", told(sock.sendto, bytes(3000), (PEER, PORT)))
        ask(sock, bytes(1000))

    child(refused)
    print("uncut in the parent", told(sock.sendto, bytes(3000), (PEER, PORT)))


def polled():
    sock = used()
    sock.sendto(b"left", (PEER, PORT))

    def looks():
        poll = select.poll()
        poll.register(sock, select.POLLIN)
        print("polled", len(poll.poll(2000)), len(poll.poll(0)))

    child(looks)
    print("parent", told(sock.recv, 100))
    sock.sendto(b"one", (PEER, PORT))
    sock.sendto(b"two", (PEER, PORT))

    def takes_one():
        poll = select.epoll()
        poll.register(sock, select.EPOLLIN)
        print("polled", len(poll.poll(2)), told(sock.recv, 100), len(poll.poll(2)))
        print("peeked", told(sock.recv, 100, socket.MSG_PEEK), len(poll.poll(0)))

    child(takes_one)
    print("parent", told(sock.recv, 100))
    sock.setblocking(False)
    print("empty", told(sock.recv, 100))


def announced():
    """What a child was told of and another process has received is not announced any more."""
    sock = used()
    here, there = socket.socketpair()
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        poll, sets = select.poll(), select.epoll()
        poll.register(sock, select.POLLIN)
        sets.register(sock, select.EPOLLIN)
        print("before", poll.poll(0), sets.poll(0))
        there.send(b"x")
        there.recv(1)
        print("taken", poll.poll(0), sets.poll(0))
        vain = 0
        for number in range(100):
            sock.sendto(b"%d" % number, (PEER, PORT))
            waits = poll if number % 2 else sets
            waits.poll(3000 if number % 2 else 3)
            assert sock.recv(100, socket.MSG_DONTWAIT) == b"%d" % number
            vain += len(poll.poll(0)) + len(sets.poll(0))
        print("in vain", vain)
        sock.connect((PEER, PORT + 1))
        sock.send(b"x")
        print("refused", [what for _, what in poll.poll(3000)], [what for _, what in sets.poll(3)])
        print("error", sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR), poll.poll(0))
        sys.stdout.flush()
        os._exit(0)
    here.recv(1)
    ask(sock, b"for the parent")
    here.send(b"x")
    os.waitpid(pid, 0)


def closed():
    """The parent has closed the socket before its child uses it."""
    sock = used()
    here, there = socket.socketpair()
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        there.recv(1)
        poll = select.poll()
        poll.register(sock, select.POLLIN)
        print("nothing", poll.poll(0), end=" ")
        ask(sock, b"by the stack")
        near = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        near.sendto(b"by the kernel", ("127.0.0.1", sock.getsockname()[1]))
        print(len(poll.poll(3000)), sock.recv(100), poll.poll(0))
        sys.stdout.flush()
        os._exit(0)
    sock.close()
    here.send(b"x")
    os.waitpid(pid, 0)


def filtered():
    sock = used()
    nothing = struct.pack("HBBI", 0x06, 0, 0, 0)

    def attaches():
        import ctypes

        code = ctypes.create_string_buffer(nothing)
        program = struct.pack("HL", 1, ctypes.addressof(code))
        print("attach", told(sock.setsockopt, socket.SOL_SOCKET, SO_ATTACH_FILTER, program))

    child(attaches)
    sock.sendto(b"x", (PEER, PORT))
    sock.settimeout(0.3)
    print("filtered", told(sock.recv, 100))
    sock = used()
    member = socket.inet_aton(GROUP) + socket.inet_aton(OWN)

    def joins():
        for _ in range(2):
            option = (socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, member)
            print("join", told(sock.setsockopt, *option))

    child(joins)
    sock.sendto(b"group %d" % sock.getsockname()[1], (PEER, PORT))
    print("heard", sorted([told(sock.recv, 100)[:5], told(sock.recv, 100)[:5]]))
    print("leave", told(sock.setsockopt, socket.IPPROTO_IP, socket.IP_DROP_MEMBERSHIP, member))


def connected():
    sock = used()

    def connects():
        ask(sock, b"unconnected")
        print("connect", told(sock.connect, (PEER, PORT)), told(sock.getpeername))
        print("send", told(sock.send, b"by name"), told(sock.recv, 100))

    child(connects)
    print("parent", told(sock.getpeername), told(sock.send, b"too"), told(sock.recv, 100))

    def dissolves():
        ask(sock, b"again")
        dissolve(sock)
        print("dissolved", told(sock.getpeername), told(sock.send, b"x"))

    child(dissolves)
    print("parent", told(sock.getpeername), told(sock.send, b"x"))


def dissolve(sock):
    import ctypes

    unspecified = ctypes.create_string_buffer(16)
    ctypes.CDLL(None).connect(sock.fileno(), unspecified, 16)


def alone():
    """The parent ends: the child has the socket for itself."""
    begun = time.monotonic()
    out, into = os.pipe()

    def parent():
        sock = used(PORT + 2)
        sock.sendto(b"waits", (PEER, PORT))
        select.select([sock], [], [], 3)
        if os.fork() == 0:
            time.sleep(0.5)
            first = told(sock.recv, 100)
            for number in range(60):
                ask(sock, b"%d" % number)
            os.write(into, b"%s %d" % (first, sock.getsockname()[1]))

    child(parent)
    print("parent has ended", time.monotonic() - begun < 0.45)
    print("child", os.read(out, 100))


def left():
    """The parent ends while its child waits, for which nothing has come."""
    out, into = os.pipe()

    def parent():
        sock = used()
        here, there = socket.socketpair()
        if os.fork() != 0:
            here.recv(1)
            return
        poll, sets = select.poll(), select.epoll()
        poll.register(sock, select.POLLIN)
        sets.register(sock, select.EPOLLIN)
        found = poll.poll(0) + sets.poll(0)
        there.send(b"x")
        found += poll.poll(700) + sets.poll(0)
        ask(sock, b"goes on")
        os.write(into, b"%d" % len(found))

    child(parent)
    print("found", os.read(out, 100))


if __name__ == "__main__":
    for scenario in (errors, polled, announced, closed, filtered, connected, alone, left):
        print(f"- {scenario.__name__}")
        scenario()

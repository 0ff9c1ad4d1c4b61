"""Echoes, each connection by a child whose parent accepts nothing else and is killed. Usage:
orphaned.py ADDRESS PORT SECONDS [WAY]

The parent is killed at once, or at any instant within SECONDS. The child begins to read now or a
little later. WAY: how it waits (recv, timeout, poll, select, epoll, edges, oneshot), or "digest":
it sends nothing but a digest of all that has come, or "full": it has no descriptors left when its
parent is killed, and sends a digest, or "grandchild": a child of the child polls instead,
"beneath": one serves while the child keeps its descriptor and never uses it, "bare": the same,
and it may start no thread, "twice": another child has it and never uses it, and the parent has it
too. "after": nobody is killed, and that child has the last word. Or another program has the
connection as its standard streams: cat in the child ("become"), which has echoed something before
("used"), or started by the parent ("spawn"), or b2sum ("sum")."""

import hashlib
import os
import random
import resource
import select
import signal
import socket
import struct
import sys
import time

BAD = select.POLLHUP | select.POLLERR


def serve(sock, way):
    time.sleep(random.choice((0, 0.01)))
    if way in ("digest", "full"):
        return globals()[way](sock)
    wait = globals()[f"by_{way}"](sock)
    has_all = True
    while True:
        if has_all:
            wait()
        try:
            data = sock.recv(4096)
        except BlockingIOError:
            assert way in ("timeout", "edges")
            has_all = True
            continue
        has_all = way != "edges"
        if not data:
            return None
        sock.sendall(data)


def digest(sock):
    whole = hashlib.blake2b()
    while data := sock.recv(4096):
        whole.update(data)
    sock.sendall(whole.digest())


def full(sock):
    """Bytes have come to it that it has not read when its parent is killed."""
    poller = select.poll()
    poller.register(sock, select.POLLIN)
    poller.poll()
    await_killing()
    files = []
    try:
        while True:
            files.append(os.dup(0))
    except OSError:
        pass
    whole = hashlib.blake2b(sock.recv(1))
    for file in files:
        os.close(file)
    while data := sock.recv(4096):
        whole.update(data)
    sock.sendall(whole.digest())


def by_recv(_):
    return lambda: None


def by_timeout(sock):
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("@qq", 0, 7000))
    return lambda: None


def by_poll(sock):
    poller = select.poll()
    poller.register(sock, select.POLLIN)
    return lambda: check(sock, poller.poll())


def by_select(sock):
    return lambda: select.select([sock], [], [])


def by_epoll(sock):
    poller = select.epoll()
    poller.register(sock, select.EPOLLIN)
    return lambda: check(sock, poller.poll())


def by_edges(sock):
    """Edge-triggered: it waits only when it has read all."""
    poller = select.epoll()
    poller.register(sock, select.EPOLLIN | select.EPOLLET)
    sock.setblocking(False)
    return lambda: check(sock, poller.poll())


def by_oneshot(sock):
    poller = select.epoll()
    poller.register(sock, 0)

    def wait():
        poller.modify(sock, select.EPOLLIN | select.EPOLLONESHOT)
        check(sock, poller.poll())

    return wait


def check(sock, events):
    assert [fd for fd, what in events if not what & BAD] == [sock.fileno()], events


def become(sock, way):
    if way == "used":
        sock.sendall(sock.recv(4096))
    os.dup2(sock.fileno(), 0)
    os.dup2(sock.fileno(), 1)
    os.execvp(*(("b2sum", ["b2sum"]) if way == "sum" else ("cat", ["cat"])))


def spawn(sock):
    actions = [(os.POSIX_SPAWN_DUP2, sock.fileno(), number) for number in (0, 1)]
    os.posix_spawnp("cat", ["cat"], os.environ, file_actions=actions)


def fork_idle():
    """A child that has the connection for a while and never uses it."""
    if os.fork() == 0:
        await_killing()
        time.sleep(0.1)
        os._exit(0)


def await_killing():
    while os.getppid() == MAKER:
        time.sleep(0.001)


def make(server, chance, seconds, way):
    sock, _ = server.accept()
    # A handshake with it would end with it.
    server.close()
    global MAKER
    MAKER = os.getpid()
    if way == "spawn":
        spawn(sock)
    elif os.fork() == 0:
        if way in ("become", "used", "sum"):
            become(sock, way)
        if way == "grandchild":
            way = "poll"
            if child := os.fork():
                sock.close()
                os.waitpid(child, 0)
                os._exit(0)
        if way in ("beneath", "bare", "after"):
            if child := os.fork():
                os.waitpid(child, 0)
                if way == "after":
                    sock.sendall(b"bye")
                os._exit(0)
            if way == "after":
                sock.sendall(sock.recv(100))
                os._exit(0)
            if way == "bare":
                resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
                os.setuid(65534)
        if way in ("beneath", "bare", "twice"):
            way = random.choice(("recv", "poll", "epoll"))
        serve(sock, way)
        os._exit(0)
    if way == "twice":
        time.sleep(chance.choice((0, 0.02)))
        fork_idle()
    else:
        sock.close()
    if way == "after":
        os.wait()
        os._exit(0)
    if way == "grandchild":
        time.sleep(seconds)
    time.sleep(chance.choice((0, chance.uniform(0, seconds))))
    os.kill(os.getpid(), signal.SIGKILL)


def main():
    server = socket.create_server((sys.argv[1], int(sys.argv[2])), backlog=200)
    chance = random.Random()
    while True:
        chance.random()
        maker = os.fork()
        if maker == 0:
            make(server, chance, float(sys.argv[3]), (sys.argv[4:] or ['recv'])[0])
        os.waitpid(maker, 0)


if __name__ == "__main__":
    main()

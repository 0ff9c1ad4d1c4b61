"""Clients of a server that is being reloaded: some close each connection, some keep theirs, some
idle on it.

    visitors.py ADDRESS PORT CLOSING KEEPING IDLING

Runs until its standard input ends, and then prints one line of JSON: what came of the requests, the
slowest of each kind in milliseconds, and what this network namespace's TCP counted meanwhile.

A kept connection that ends before any byte of an answer is asked again on a new one, as browsers do
(RFC 9112, 9.3.1): it counts as `raced`, and its time goes on."""

import collections
import errno
import json
import os
import selectors
import socket
import sys
import time

ADDRESS, PORT = sys.argv[1], int(sys.argv[2])
CLOSING, KEEPING, IDLING = (int(word) for word in sys.argv[3:6])
# Seconds until a request has failed, and between the requests of those that idle.
PATIENCE = 10
IDLE_SECONDS = 0.5
# Slow requests that are remembered, of each kind.
SLOW_MAX = 20
SCHEDSTAT = os.open("/proc/self/schedstat", os.O_RDONLY)


class Visitor:
    """One client, with at most one connection and one request at a time."""

    def __init__(self, report, poll, kind):
        self.report, self.poll, self.kind = report, poll, kind
        self.sock = None
        self.began = None
        self.buffer = b""
        self.is_first = True
        self.state = "connecting"
        self.due = time.monotonic()
        self.connect()

    def connect(self):
        self.connected = None
        self.sock = socket.socket()
        self.sock.setblocking(False)
        self.is_first = True
        self.buffer = b""
        self.begin()
        result = self.sock.connect_ex((ADDRESS, PORT))
        if result not in (0, errno.EINPROGRESS):
            self.fail(errno.errorcode[result])
            return
        self.state = "connecting"
        self.poll.register(self.sock, selectors.EVENT_WRITE, self)

    def begin(self):
        if self.began is None:
            self.began, self.held = time.monotonic(), held_seconds()

    def drop(self):
        self.poll.unregister(self.sock)
        self.sock.close()
        self.sock = None

    def ask(self):
        kind = "close" if self.kind == "closing" else "keep-alive"
        self.begin()
        self.state = "asking"
        self.buffer = b""
        try:
            self.sock.send(
                f"GET /hello HTTP/1.1\r\nHost: test\r\nConnection: {kind}\r\n\r\n".encode()
            )
        except OSError as error:
            self.end(errno.errorcode[error.errno])
            return
        self.poll.modify(self.sock, selectors.EVENT_READ, self)

    def ready(self):
        if self.state == "connecting":
            result = self.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if result:
                self.fail(errno.errorcode[result])
            else:
                self.connected = time.monotonic()
                self.ask()
            return
        try:
            data = self.sock.recv(65536)
        except BlockingIOError:
            return
        except OSError as error:
            self.end(errno.errorcode[error.errno])
            return
        if not data:
            self.end("EOF")
            return
        self.buffer += data
        head, found, body = self.buffer.partition(b"\r\n\r\n")
        if found and b"Content-Length: " in head:
            length = int(head.partition(b"Content-Length: ")[2].split(b"\r")[0])
            if len(body) >= length:
                self.done(head)

    def done(self, head):
        if not head.startswith(b"HTTP/1.1 200"):
            self.report.failures[f"{self.kind}: {head[9:12].decode()}"] += 1
        now = time.monotonic()
        connecting = max(0.0, (self.connected or 0.0) - self.began)
        held = held_seconds() - self.held
        self.report.took(self.kind, (now - self.began, connecting, held))
        self.began = None
        self.is_first = False
        self.state = "idle"
        if self.kind == "closing" or b"Connection: close" in head:
            self.drop()
            self.connect()
        elif self.kind == "keeping":
            self.ask()
        else:
            self.due = time.monotonic() + IDLE_SECONDS

    def end(self, how):
        """The server has ended the connection."""
        if self.state == "idle" or (not self.is_first and not self.buffer):
            self.report.ends[f"{'idle' if self.state == 'idle' else 'raced'} {how}"] += 1
            self.drop()
            self.connect()
        else:
            self.fail(how)

    def fail(self, how):
        self.report.failures[f"{self.kind}: {how} while {self.state}"] += 1
        self.began = None
        if self.sock is not None:
            self.drop()
        self.connect()

    def tick(self, now):
        if self.state == "idle" and self.kind == "idling" and now >= self.due:
            self.ask()
        elif self.began is not None and now - self.began > PATIENCE:
            self.fail("timeout")


class Report:
    def __init__(self):
        self.counts = collections.Counter()
        self.slowest = collections.defaultdict(list)
        self.failures = collections.Counter()
        self.ends = collections.Counter()

    def took(self, kind, times):
        """All of it, until it was connected, and without a processor for this process."""
        self.counts[kind] += 1
        slow = self.slowest[kind]
        slow.append(times)
        if len(slow) > 1000:
            slow.sort(reverse=True)
            del slow[SLOW_MAX:]


def held_seconds():
    """How long this process was ready to run while the machine was busy with others."""
    return int(os.pread(SCHEDSTAT, 100, 0).split()[1]) / 1e9


def counters():
    found = {}
    for path in ("/proc/net/snmp", "/proc/net/netstat"):
        with open(path) as file:
            lines = file.read().splitlines()
        for names, values in zip(lines[::2], lines[1::2]):
            group = names.partition(":")[0]
            for name, value in zip(names.split()[1:], values.split()[1:]):
                found[f"{group}.{name}"] = int(value)
    return found


WATCHED = {
    "SYNs again": "TcpExt.TCPSynRetrans",
    "segments again": "Tcp.RetransSegs",
    "resets": "Tcp.EstabResets",
    "refusals": "Tcp.AttemptFails",
}


def main():
    before = counters()
    report = Report()
    poll = selectors.DefaultSelector()
    poll.register(sys.stdin, selectors.EVENT_READ, None)
    kinds = ["closing"] * CLOSING + ["keeping"] * KEEPING + ["idling"] * IDLING
    visitors = [Visitor(report, poll, kind) for kind in kinds]
    ticked = time.monotonic()
    while True:
        for key, _ in poll.select(0.05):
            if key.data is None:
                print_report(report, before)
                return
            key.data.ready()
        now = time.monotonic()
        if now - ticked > 0.05:
            ticked = now
            for visitor in visitors:
                visitor.tick(now)


def print_report(report, before):
    after = counters()
    slowest = {kind: sorted(slow, reverse=True)[:8] for kind, slow in report.slowest.items()}
    told = {
        "requests": dict(report.counts),
        "slowest_ms": {
            kind: [round(one[0] * 1000) for one in slow] for kind, slow in slowest.items()
        },
        "slowest": [
            round(one * 1000) for one in max((all[0] for all in slowest.values()), default=())
        ],
        "failures": dict(report.failures),
        "ends": dict(report.ends),
        "tcp": {name: after[key] - before[key] for name, key in WATCHED.items()},
    }
    print(json.dumps(told), flush=True)


main()

"""A transfer by datagrams whose client changes its port and address, as QUIC's do behind a NAT.

    migrating.py server PORT                          PORT to PORT + 2, a kind of server at each
    migrating.py client ADDRESS PORT OWN[,OWN…]       from OWN in turns, each time from another port

The first byte of a datagram is the number of the worker that has the transfer, as a connection ID
names it; in the first datagram of a transfer it names none."""

import os
import select
import signal
import socket
import struct
import sys

WORKERS = 2
NEW = b"n"
# A BPF program chooses the worker; workers hand over what is another one's; the same, and each has
# a connected socket for every address of its client.
STEERED, HANDED, CONNECTED = KINDS = range(3)
SO_ATTACH_REUSEPORT_CBPF = 51
CHANGES, EACH, WINDOW, BYTES = 12, 25, 16, 1000
# Worker, number of the datagram; in an answer: how many of the transfer the worker has received.
HEAD = struct.Struct("!cI")


def bound(port):
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    sock.bind(("0.0.0.0", port))
    return sock


def steer(sock):
    """The group's program: the first byte less b"0" is the number of the socket."""
    import ctypes

    rows = [(0x30, 0), (0x14, ord("0")), (0x16, 0)]
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", op, 0, 0, k) for op, k in rows))
    program = struct.pack("HL", len(rows), ctypes.addressof(code))
    sock.setsockopt(socket.SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF, program)


class Worker:
    def __init__(self, number, port, listeners, inboxes):
        self.number, self.port, self.inboxes = number, port, inboxes
        self.name = b"%d" % number
        self.received = {kind: 0 for kind in KINDS}
        self.connected = {}
        self.kinds = {sock: kind for kind, sock in zip(KINDS, listeners)}
        self.sockets = {kind: sock for sock, kind in self.kinds.items()}

        self.poll, self.by_number = select.epoll(), {}
        for sock in [inboxes[number][0], *listeners]:
            self.watch(sock)

    def watch(self, sock):
        self.by_number[sock.fileno()] = sock
        self.poll.register(sock.fileno(), select.EPOLLIN)

    def run(self):
        while True:
            for number, _ in self.poll.poll():
                sock = self.by_number[number]
                if sock is self.inboxes[self.number][0]:
                    text = sock.recv(65_535)
                    kind, host, port = struct.unpack_from("!B4sH", text)
                    self.take(kind, text[7:], (socket.inet_ntoa(host), port))
                else:
                    self.route(self.kinds[sock], *sock.recvfrom(65_535))

    def route(self, kind, text, client):
        owner = text[:1]
        if owner in (NEW, self.name):
            self.take(kind, text, client)
        elif kind == STEERED:
            print(f"worker {self.number} received what is of {owner}", flush=True)
        else:
            head = struct.pack("!B4sH", kind, socket.inet_aton(client[0]), client[1])
            self.inboxes[int(owner)][1].send(head + text)

    def take(self, kind, text, client):
        owner, sequence = HEAD.unpack_from(text)
        self.received[kind] = 1 if owner == NEW else self.received[kind] + 1
        answer = HEAD.pack(self.name, sequence) + HEAD.pack(b"c", self.received[kind])
        answer += text[HEAD.size :]
        if kind == CONNECTED:
            self.connection(client).send(answer)
        else:
            self.sockets[kind].sendto(answer, client)

    def connection(self, client):
        if client not in self.connected:
            sock = bound(self.port + CONNECTED)
            sock.connect(client)
            self.connected[client] = sock
            self.kinds[sock] = CONNECTED
            self.watch(sock)
        return self.connected[client]


def serve(port):
    inboxes = [socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM) for _ in range(WORKERS)]
    listeners = [[bound(port + kind) for kind in KINDS] for _ in range(WORKERS)]
    steer(listeners[0][STEERED])
    pids = [fork(number, port, listeners, inboxes) for number in range(WORKERS)]
    for sock in sum(listeners, []):
        sock.close()
    signal.signal(signal.SIGTERM, lambda *_: [os.kill(pid, signal.SIGTERM) for pid in pids])
    print("ready", flush=True)
    for pid in pids:
        os.waitpid(pid, 0)


def fork(number, port, listeners, inboxes):
    pid = os.fork()
    if pid != 0:
        return pid
    for sock in sum(listeners[:number] + listeners[number + 1 :], []):
        sock.close()
    Worker(number, port, listeners[number], inboxes).run()


class Transfer:
    def __init__(self, address, port, own):
        self.to, self.own, self.sockets = (address, port), own, []
        self.owner, self.sent, self.waiting, self.received = NEW, 0, {}, 0

    def change(self):
        """Another port, and the next address. Answers to the earlier ones may be on their way."""
        sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        sock.bind((self.own[len(self.sockets) % len(self.own)], 0))
        self.sockets.append(sock)

    def send(self):
        data = os.urandom(BYTES)
        self.sockets[-1].sendto(HEAD.pack(self.owner, self.sent) + data, self.to)
        self.waiting[self.sent] = data
        self.sent += 1

    def answers(self, left):
        """Receives until `left` answers are missing."""
        while len(self.waiting) > left:
            ready = select.select(self.sockets, [], [], 5)[0]
            assert ready, f"no answer to {sorted(self.waiting)}, by {self.owner}"
            for sock in ready:
                text = sock.recv(65_535)
                worker, sequence = HEAD.unpack_from(text)
                assert self.owner in (NEW, worker), f"{self.owner} has it, {worker} answered"
                assert text[2 * HEAD.size :] == self.waiting.pop(sequence), "other bytes"
                self.owner = worker
                self.received = max(self.received, HEAD.unpack_from(text, HEAD.size)[1])


def ask(address, port, own):
    transfer = Transfer(address, port, own)
    transfer.change()
    transfer.send()
    transfer.answers(0)
    for _ in range(CHANGES):
        transfer.change()
        for _ in range(EACH):
            transfer.send()
            transfer.answers(WINDOW)
    transfer.answers(0)
    assert transfer.received == transfer.sent, f"the worker has {transfer.received}"
    print(f"{transfer.sent} echoed")


if __name__ == "__main__":
    if sys.argv[1] == "server":
        serve(int(sys.argv[2]))
    else:
        ask(sys.argv[2], int(sys.argv[3]), sys.argv[4].split(","))

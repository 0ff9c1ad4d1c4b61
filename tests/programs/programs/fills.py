"""Sends datagrams until the send buffer is full and waits for EPOLLOUT (edge-triggered), some
rounds. Usage: fills.py ADDRESS PORT

One thread does both, then one waits while another one sends; with single datagrams, then with
several in a call (UDP_SEGMENT)."""

import select
import socket
import sys
import threading

SOL_UDP, UDP_SEGMENT = 17, 103
PAYLOAD, SEGMENTS = 1400, 10
ROUNDS, SENDS_MAX, WAIT_S = 4, 200, 3


class Sender:
    def __init__(self, to, segments):
        self.to, self.size, self.sent = to, PAYLOAD * segments, 0
        self.sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.sock.setblocking(False)
        self.sock.bind(("0.0.0.0", 0))
        if segments > 1:
            self.sock.setsockopt(SOL_UDP, UDP_SEGMENT, PAYLOAD)
        self.poll = select.epoll()
        self.poll.register(self.sock, select.EPOLLIN | select.EPOLLOUT | select.EPOLLET)

    def fills(self):
        """Whether the buffer was full before the limit of calls."""
        for _ in range(SENDS_MAX):
            try:
                self.sock.sendto(bytes(self.size), self.to)
                self.sent += 1
            except BlockingIOError:
                return True
        return False

    def has_room(self):
        return any(events & select.EPOLLOUT for _, events in self.poll.poll(WAIT_S))

    def alone(self):
        self.has_room()
        return all(self.has_room() for _ in range(ROUNDS) if self.fills())

    def beside(self):
        room = threading.Semaphore(0)

        def waits():
            while self.sock.fileno() >= 0:
                if self.has_room():
                    room.release()

        threading.Thread(target=waits, daemon=True).start()
        room.acquire(timeout=WAIT_S)
        return all(room.acquire(timeout=WAIT_S) for _ in range(ROUNDS) if self.fills())


to = (sys.argv[1], int(sys.argv[2]))
for segments in (1, SEGMENTS):
    for way in (Sender.alone, Sender.beside):
        sender = Sender(to, segments)
        print(way.__name__, segments, "goes on" if way(sender) else f"waits after {sender.sent}")

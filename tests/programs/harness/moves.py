"""Clients of programs/moving.py: they check that all sent bytes come back, whatever moves or is
killed."""

import random
import threading
import time

CLIENTS = 6
TURNS = 40
# Longer than any pause, so that a timeout means a lost connection.
WAIT_SECONDS = 10


class Moves:
    def __init__(self, world, port, seconds, seed, ways=("-", "k", "f", "c"), cut=("k",)):
        self.world, self.port = world, port
        # What the server may be asked to do, and when it may end a connection.
        self.ways, self.cut = ways, cut
        self.end = time.monotonic() + seconds
        self.done, self.whole, self.wrong = 0, 0, []
        self.threads = [
            threading.Thread(target=self._client, args=(random.Random(f"{seed} {number}"),))
            for number in range(CLIENTS)
        ]

    def run(self):
        """How many connections there were; those of which more was lost than a killed child's."""
        for thread in self.threads:
            thread.start()
        for thread in self.threads:
            thread.join()
        assert not self.wrong, self.wrong[:5]
        return self.done

    def _client(self, chance):
        while time.monotonic() < self.end:
            how = chance.choice(self.ways)
            turns = 0
            try:
                for turns in self._turns(chance, how):
                    pass
                self.whole += 1
            except (EOFError, ConnectionError) as cut:
                if how not in self.cut:
                    self.wrong.append((how, turns, repr(cut)))
            except (AssertionError, OSError) as failure:
                self.wrong.append((how, turns, repr(failure)))
            self.done += 1

    def _turns(self, chance, how):
        with self.world.connect(self.port) as sock:
            sock.settimeout(WAIT_SECONDS)
            exchange(sock, how.encode())
            for turn in range(TURNS):
                yield turn
                exchange(sock, chance.randbytes(chance.randint(1, 3000)))


def exchange(sock, data):
    sock.sendall(data)
    got = b""
    while len(got) < len(data):
        piece = sock.recv(65536)
        if not piece:
            raise EOFError
        got += piece
    assert got == data, "other bytes than were sent"

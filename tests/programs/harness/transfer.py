"""A transfer in both directions that runs beside a test."""

import os
import threading
import time

from .process import until


class Transfer(threading.Thread):
    """Sends to an echo server and reads the answers, until it is stopped."""

    def __init__(self, sock):
        super().__init__(daemon=True)
        self.sock = sock
        self.rounds = 0
        self.is_over = False
        self.error = None
        sock.settimeout(10)
        self.start()

    def run(self):
        try:
            while not self.is_over:
                data = os.urandom(20_000)
                self.sock.sendall(data)
                got = bytearray()
                while len(got) < len(data):
                    chunk = self.sock.recv(65536)
                    assert chunk, "the connection has ended"
                    got += chunk
                assert got == data, "other bytes came back"
                self.rounds += 1
                time.sleep(0.01)
        except Exception as error:
            self.error = error

    def goes_on(self, what):
        before = self.rounds
        until(lambda: self.error or self.rounds > before + 10, 10, f"the transfer goes on {what}")
        assert self.error is None, f"{what}: {self.error!r}"

    def stop(self):
        self.is_over = True
        self.join(10)

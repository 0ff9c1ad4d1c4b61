"""Opens connections with data (MSG_FASTOPEN) while a handler runs every 0.1 ms."""

import signal
import socket
import sys

MSG_FASTOPEN = 0x20000000
ADDRESS, PORT, COUNT = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])

signal.signal(signal.SIGALRM, lambda *_: None)
# The system calls are made again (SA_RESTART).
signal.siginterrupt(signal.SIGALRM, False)
for _ in range(COUNT):
    with socket.socket() as sock:
        signal.setitimer(signal.ITIMER_REAL, 0.0001, 0.0001)
        sent = sock.sendto(b"hello", MSG_FASTOPEN, (ADDRESS, PORT))
        signal.setitimer(signal.ITIMER_REAL, 0)
        assert sent == 5, sent
        # Waits for the handshake, if a handler has ended the call before: a close would give it up.
        sock.sendall(b"!")

"""A listener that a worker serves; neither its creator nor the worker's parent waits on it."""

import os
import signal
import socket
import sys


def wait_for(child):
    def end(*_):
        os.kill(child, signal.SIGTERM)
        os.wait()
        os._exit(0)

    signal.signal(signal.SIGTERM, end)
    signal.pause()


listener = socket.create_server(("0.0.0.0", 9000))
master = os.fork()
if master:
    wait_for(master)
worker = os.fork()
if worker:
    print(os.getpid(), worker, flush=True)
    wait_for(worker)
signal.signal(signal.SIGTERM, signal.SIG_DFL)
while True:
    connection, _ = listener.accept()
    connection.close()

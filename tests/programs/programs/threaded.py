"""Blocking sockets and threads. Usage: threaded.py server PORT
                                       threaded.py client ADDRESS PORT THREADS ROUNDS
                                       threaded.py duplex ADDRESS PORT BYTES"""

import hashlib
import socket
import sys
import threading


def receive(sock, size):
    data = bytearray()
    while len(data) < size:
        chunk = sock.recv(65536)
        if not chunk:
            raise SystemExit(f"the connection ended after {len(data)} of {size} bytes")
        data += chunk
    return bytes(data)


def serve(sock):
    with sock:
        while data := sock.recv(65536):
            sock.sendall(data)


def server(port):
    listener = socket.create_server(("0.0.0.0", int(port)), backlog=128)
    while True:
        sock, _ = listener.accept()
        threading.Thread(target=serve, args=(sock,), daemon=True).start()


def client(address, port, threads, rounds):
    failures = []

    def work(number):
        try:
            with socket.create_connection((address, int(port)), timeout=20) as sock:
                for turn in range(int(rounds)):
                    data = hashlib.shake_256(f"{number}.{turn}".encode()).digest(1 + 997 * turn)
                    sock.sendall(data)
                    assert receive(sock, len(data)) == data
        except BaseException as error:
            failures.append(f"thread {number}: {error!r}")

    workers = [threading.Thread(target=work, args=(number,)) for number in range(int(threads))]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    if failures:
        raise SystemExit("\n".join(failures))
    print(f"{threads} threads done")


def duplex(address, port, size):
    size = int(size)
    data = hashlib.shake_256(b"duplex").digest(1_000_000) * (size // 1_000_000)
    with socket.create_connection((address, int(port)), timeout=30) as sock:
        sender = threading.Thread(target=sock.sendall, args=(data,))
        sender.start()
        got = receive(sock, size)
        sender.join()
    assert got == data
    print(f"{size} bytes both ways")


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])

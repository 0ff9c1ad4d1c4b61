"""The program at both ends: a server that sends what it is asked for, clients that ask and measure.

    transfer.py serve ADDRESSES PORT CONGESTION
    transfer.py bulk ADDRESSES PORT SECONDS
    transfer.py short ADDRESSES PORT COUNT BYTES WORKERS SECONDS_MAX

Of several addresses, separated by commas, each is listened on, each has a bulk transfer at the same
time, and short ones take turns. The clients print one line of JSON. A request is a kind (B: until
the client goes, S: so many bytes) and a number of 8 bytes."""

import concurrent.futures
import itertools
import json
import selectors
import socket
import struct
import sys
import threading
import time

REQUEST = struct.Struct("!cQ")
CHUNK = bytes(range(256)) * 1024
LINGER_RESET = struct.pack("ii", 1, 0)
# A client that hears nothing for so long gives up.
SILENCE_SECONDS = 30


def receive_exactly(connection, count):
    data = b""
    while len(data) < count:
        piece = connection.recv(count - len(data))
        if not piece:
            raise ConnectionError("the request is cut off")
        data += piece
    return data


def answer(connection):
    with connection:
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            kind, count = REQUEST.unpack(receive_exactly(connection, REQUEST.size))
            left = count if kind == b"S" else 1 << 62
            view = memoryview(CHUNK)
            while left > 0:
                left -= connection.send(view[:left] if left < len(view) else view)
        except OSError:
            pass


def serve(addresses, port, congestion):
    listeners = selectors.DefaultSelector()
    for address in addresses.split(","):
        listener = socket.create_server((address, int(port)), backlog=512)
        # Connections inherit it. By socket: the system's default may be another one, and fixed.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, congestion.encode())
        listeners.register(listener, selectors.EVENT_READ)
    print("ready", flush=True)
    while True:
        for key, _ in listeners.select():
            connection, _ = key.fileobj.accept()
            threading.Thread(target=answer, args=(connection,), daemon=True).start()


def ask(address, port, kind, count):
    connection = socket.create_connection((address, int(port)), timeout=SILENCE_SECONDS)
    connection.sendall(REQUEST.pack(kind, count))
    return connection


def bulk(addresses, port, seconds):
    """Bytes received within so many seconds of the request, second by second."""
    addresses = addresses.split(",")
    with concurrent.futures.ThreadPoolExecutor(len(addresses)) as pool:
        each = list(pool.map(lambda address: receive_bulk(address, port, seconds), addresses))
    series = [sum(second) for second in zip(*each)]
    print(json.dumps({"bytes": sum(series), "seconds": len(series), "series": series}))


def receive_bulk(address, port, seconds):
    """A wire that has lost one retransmission after the other may be silent at the end: that is a
    result too."""
    connection = ask(address, port, b"B", 0)
    begin = time.monotonic()
    buffer = bytearray(1 << 18)
    series = [0] * int(float(seconds))
    while (passed := time.monotonic() - begin) < len(series):
        connection.settimeout(len(series) - passed)
        try:
            count = connection.recv_into(buffer)
        except TimeoutError:
            break
        if not count:
            raise ConnectionError("the server has ended early")
        passed = time.monotonic() - begin
        series[min(int(passed), len(series) - 1)] += count
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER_RESET)
    connection.close()
    return series


def short(addresses, port, count, size, workers, seconds_max):
    """Times from before the connect to the end of the answer."""
    times, failures = [], []
    todo = iter(itertools.islice(itertools.cycle(addresses.split(",")), int(count)))
    lock = threading.Lock()
    end = time.monotonic() + float(seconds_max)

    def work():
        while time.monotonic() < end:
            with lock:
                address = next(todo, None)
            if address is None:
                return
            begin = time.monotonic()
            try:
                with ask(address, port, b"S", int(size)) as connection:
                    received = 0
                    while piece := connection.recv(1 << 16):
                        received += len(piece)
                if received != int(size):
                    raise ConnectionError(f"{received} of {size} bytes")
            except OSError as error:
                with lock:
                    failures.append(str(error))
                continue
            with lock:
                times.append(time.monotonic() - begin)

    threads = [threading.Thread(target=work) for _ in range(int(workers))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(json.dumps({"times": sorted(times), "failures": failures}))


if __name__ == "__main__":
    {"serve": serve, "bulk": bulk, "short": short}[sys.argv[1]](*sys.argv[2:])

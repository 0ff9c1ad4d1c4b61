"""The program at both ends: a server that sends what it is asked for, clients that ask and measure.

    transfer.py serve ADDRESS PORT CONGESTION
    transfer.py bulk ADDRESS PORT SECONDS
    transfer.py short ADDRESS PORT COUNT BYTES WORKERS SECONDS_MAX

The clients print one line of JSON. A request is a kind (B: until the client goes, S: so many bytes)
and a number of 8 bytes."""

import json
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


def serve(address, port, congestion):
    listener = socket.create_server((address, int(port)), backlog=512)
    # Connections inherit it. By socket: the system's default may be another one, and fixed.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, congestion.encode())
    print("ready", flush=True)
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=answer, args=(connection,), daemon=True).start()


def ask(address, port, kind, count):
    connection = socket.create_connection((address, int(port)), timeout=SILENCE_SECONDS)
    connection.sendall(REQUEST.pack(kind, count))
    return connection


def bulk(address, port, seconds):
    """Bytes received within so many seconds of the request, second by second. A wire that has lost
    one retransmission after the other may be silent at the end: that is a result too."""
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
    print(json.dumps({"bytes": sum(series), "seconds": len(series), "series": series}))


def short(address, port, count, size, workers, seconds_max):
    """Times from before the connect to the end of the answer."""
    times, failures = [], []
    todo = iter(range(int(count)))
    lock = threading.Lock()
    end = time.monotonic() + float(seconds_max)

    def work():
        while time.monotonic() < end:
            with lock:
                if next(todo, None) is None:
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

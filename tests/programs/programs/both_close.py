"""Two ends that close at one moment: `both_close.py serve PORT`, and `both_close.py ask ADDRESS
PORT`, which prints how many ends of its connections had all that the other one sent.

Each end sends LEN bytes, shuts its side and reads to the end. Both begin at the same moment."""

import socket
import sys
import threading

ROUNDS, AT_ONCE, LEN = 5, 20, 20_000


def exchange(sock):
    """Whether everything has come, and its end."""
    sock.settimeout(20)
    sock.sendall(bytes(LEN))
    sock.shutdown(socket.SHUT_WR)
    count = 0
    while data := sock.recv(1 << 16):
        count += len(data)
    return count == LEN


def serve(port):
    with socket.create_server(("0.0.0.0", port), backlog=AT_ONCE) as server:
        print("listens", flush=True)
        while True:
            threading.Thread(target=end, args=(server.accept()[0],)).start()


def end(sock):
    with sock:
        sock.sendall(b"b")
        if not exchange(sock):
            print("too little", flush=True)


def ask(address, port, whole):
    with socket.create_connection((address, port), timeout=20) as sock:
        assert sock.recv(1) == b"b"
        whole.append(exchange(sock))


if sys.argv[1] == "serve":
    serve(int(sys.argv[2]))
whole = []
for _ in range(ROUNDS):
    asking = [
        threading.Thread(target=ask, args=(sys.argv[2], int(sys.argv[3]), whole))
        for _ in range(AT_ONCE)
    ]
    for thread in asking:
        thread.start()
    for thread in asking:
        thread.join()
print(sum(whole), "of", ROUNDS * AT_ONCE)

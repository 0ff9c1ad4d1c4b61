"""Two ends that close at one moment: `both_close.py serve PORT`, and `both_close.py ask ADDRESS
PORT [reset]`, which prints how many ends of its connections had what they had to get.

Each end sends LEN bytes of its own, shuts its side and reads to the end; both begin at the same
moment. With `reset` the asking end, the other one or both close with SO_LINGER 0 once they have
sent; an end that reads must have a part of the other's bytes, from their beginning, and then an
error."""

import contextlib
import hashlib
import socket
import struct
import sys
import threading

ROUNDS, AT_ONCE, LEN = 5, 20, 20_000
PLAIN, ASKER_RESETS, SERVER_RESETS, BOTH_RESET = range(4)


def bytes_of(name, number):
    return hashlib.shake_256(b"%s %d" % (name, number)).digest(LEN)


def exchange(sock, sent, wanted):
    """Returns whether everything has come, and its end."""
    sock.sendall(sent)
    sock.shutdown(socket.SHUT_WR)
    return read(sock) == (wanted, True)


def reset(sock, sent):
    with contextlib.suppress(ConnectionResetError, BrokenPipeError):
        sock.sendall(sent)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()
    return True


def is_reset(sock, sent, wanted):
    """Returns whether a part of the bytes has come, and an error, once: after one of the call that
    sends, the end follows."""
    has_failed = False
    try:
        sock.sendall(sent)
    except (ConnectionResetError, BrokenPipeError):
        has_failed = True
    got, is_ended = read(sock)
    return wanted.startswith(got) and is_ended == has_failed


def read(sock):
    """Returns the bytes that come, and whether an end without an error follows."""
    got = b""
    try:
        while data := sock.recv(1 << 16):
            got += data
    except ConnectionResetError:
        return got, False
    return got, True


def use(sock, how, resets, names, number):
    sock.settimeout(20)
    sent, wanted = (bytes_of(name, number) for name in names)
    if how == PLAIN:
        return exchange(sock, sent, wanted)
    return reset(sock, sent) if how in resets else is_reset(sock, sent, wanted)


def serve(port):
    with socket.create_server(("0.0.0.0", port), backlog=AT_ONCE) as server:
        print("listens", flush=True)
        while True:
            threading.Thread(target=end, args=(server.accept()[0],)).start()


def end(sock):
    with sock:
        how, number = struct.unpack("ii", sock.recv(8, socket.MSG_WAITALL))
        sock.sendall(b"b")
        if not use(sock, how, (SERVER_RESETS, BOTH_RESET), (b"server", b"asker"), number):
            print(f"wrong: {how} {number}", flush=True)


def ask(address, port, how, number, whole):
    with socket.create_connection((address, port), timeout=20) as sock:
        sock.sendall(struct.pack("ii", how, number))
        assert sock.recv(1) == b"b"
        resets = (ASKER_RESETS, BOTH_RESET)
        whole.append(use(sock, how, resets, (b"asker", b"server"), number))


def main():
    if sys.argv[1] == "serve":
        serve(int(sys.argv[2]))
    whole = []
    for turn in range(ROUNDS):
        asking = []
        for at in range(AT_ONCE):
            how = 1 + at % 3 if sys.argv[4:] == ["reset"] else PLAIN
            words = (sys.argv[2], int(sys.argv[3]), how, turn * AT_ONCE + at, whole)
            asking.append(threading.Thread(target=ask, args=words))
        for thread in asking:
            thread.start()
        for thread in asking:
            thread.join()
    print(sum(whole), "of", ROUNDS * AT_ONCE)


main()

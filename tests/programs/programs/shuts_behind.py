"""A child writes until it finds no room, and then somebody shuts the direction down.

shuts_behind.py PORT WHO THEN: WHO is `owner`, `sibling` or `writer`; THEN, the server `stays` until
its input ends, or `ends`."""

import os
import socket
import sys
import time

PORT, WHO, THEN = int(sys.argv[1]), sys.argv[2], sys.argv[3]
STEP = 50_000


def say(words):
    os.write(1, f"{words}\n".encode())


def fill(conn):
    """Writes until nothing is taken for a while; returns how much was."""
    count = idle = 0
    conn.setblocking(False)
    while idle < 10:
        try:
            count += conn.send(bytes(STEP))
            idle = 0
        except BlockingIOError:
            time.sleep(0.03)
            idle += 1
    return count


def shut(conn):
    begun = time.monotonic()
    conn.shutdown(socket.SHUT_WR)
    say("in time" if time.monotonic() - begun < 0.5 else "late")


def refused(conn):
    try:
        conn.send(b"more")
    except BrokenPipeError:
        return "EPIPE"
    except OSError as error:
        return error.strerror
    return "taken"


def child(conn, work):
    """A child that does `work` once the parent writes a byte, and says when it is done."""
    (asked, ask), (done, tell) = os.pipe(), os.pipe()
    if os.fork() == 0:
        os.close(ask)
        os.read(asked, 1)
        work(conn)
        os.write(tell, b"x")
        os.read(asked, 1)
        os._exit(0)
    os.close(tell)
    return lambda: (os.write(ask, b"x"), os.read(done, 1))


def main():
    listener = socket.create_server(("", PORT))
    say("listening")
    conn, _ = listener.accept()

    def writes(conn):
        say(f"wrote {fill(conn)}")
        if WHO == "writer":
            shut(conn)

    children = [child(conn, writes), child(conn, shut if WHO == "sibling" else lambda _: None)]
    for run in children:
        run()
    if WHO == "owner":
        shut(conn)
    time.sleep(0.1)
    conn.setblocking(False)
    say(f"then {refused(conn)}")
    if THEN == "stays":
        sys.stdin.read()
    say("ends")


main()

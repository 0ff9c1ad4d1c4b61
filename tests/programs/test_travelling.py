"""Connections that go to another process in any state of theirs."""

import contextlib
import fcntl
import hashlib
import socket
import struct
import termios
import time

from harness import test
from harness.process import until

SIZE = 300_000
MUCH = 200_000
# Grandchildren of `branching`.
BRANCHES = 200
# The urgent byte.
MARK = 5000
URGENT = ("urgent", "inline", "taken")
# Processes that end while a thread writes.
ENDS = 8
STATES = (
    "fin",
    "both",
    "shut",
    "hasty",
    "full",
    "unread",
    "over",
    "waited",
    "reset",
    "plain",
)


def data_of(name, size):
    return hashlib.shake_256(name.encode()).digest(size)


def connected(world, port, server):
    """To a server that accepts once, with a small receive buffer."""

    def try_once():
        with world.at_peer():
            sock = socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 20_000)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2 * MUCH)
        sock.settimeout(20)
        try:
            sock.connect((world.address, port))
        except OSError:
            sock.close()
            return None
        return sock

    return until(try_once, 10, "it accepts")


def everything(sock):
    data = bytearray()
    while chunk := sock.recv(65536):
        data += chunk
    return bytes(data)


def unacknowledged(sock):
    count = fcntl.ioctl(sock, termios.TIOCOUTQ, b"\0" * 4)
    return struct.unpack("i", count)[0]


def all_arrived(server, down):
    """All that had been sent before the program shut this direction down."""
    assert f"goes on {len(down)} bytes" in server.output(), f"{len(down)}\n{server.tail()}"


def started(world, port):
    server = world.stack(*world.program("travelling.py"), world.address, port)
    until(lambda: world.mode == "kernel" or "is reached at" in server.errors(), 10, "it is up")
    return server


def send_around_urgent(sock, data):
    """Sends the first bytes of `data`, the next one as urgent, and some more."""
    sock.sendall(data[:MARK])
    sock.send(data[MARK : MARK + 1], socket.MSG_OOB)
    sock.sendall(data[MARK + 1 : 2 * MARK])


def goes_on(world, who, state, port):
    server = started(world, port)
    unread = {"unread": MUCH, "counted": MUCH}.get(state, 0)
    if state in URGENT:
        unread = 2 * MARK
    up = data_of("up", unread + 50_000)
    with connected(world, port, server) as sock:
        sock.sendall(f"{who} {state}\n".encode())
        if state in ("fin", "both", "over", "waited", "reset"):
            if state == "waited":
                down = everything(sock)
            sock.sendall(up)
            if state == "reset":
                assert sock.recv(4) == b"have"
                until(lambda: unacknowledged(sock) == 0, 10, "it has come")
                # A reset instead of a FIN.
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                sock.close()
            else:
                sock.shutdown(socket.SHUT_WR)
            if state == "over":
                down = everything(sock)
        elif state in URGENT:
            assert sock.recv(4) == b"have"
            send_around_urgent(sock, up)
        elif unread:
            sock.sendall(up[:unread])
        until(lambda: "goes on" in server.output(), 20, f"{who} {state}\n{server.tail()}")
        if state in ("shut", "hasty", "both", "full"):
            # The peer has taken nothing more for a while.
            time.sleep(0.3)
        if state in ("shut", "hasty"):
            down = everything(sock)
            sock.sendall(up)
            sock.shutdown(socket.SHUT_WR)
            all_arrived(server, down)
        elif state in ("both", "over", "waited"):
            if state == "both":
                down = everything(sock)
            all_arrived(server, down)
        elif state == "reset":
            down = b""
        elif state == "full":
            expected = 9 * SIZE
            down = bytearray()
            while len(down) < expected:
                chunk = sock.recv(65536)
                assert chunk, f"{who} {state}: the end after {len(down)} bytes"
                down += chunk
            sock.sendall(up)
            sock.shutdown(socket.SHUT_WR)
            assert sock.recv(1) == b""
        else:
            if state != "fin":
                sock.sendall(up[unread:])
                sock.shutdown(socket.SHUT_WR)
            down = everything(sock)
            assert len(down) == SIZE, f"{who} {state}: {len(down)} bytes"
        assert bytes(down) == data_of("down", 9 * SIZE)[: len(down)], f"{who} {state}: other bytes"
    told = f"got {len(up)} {hashlib.sha256(up).hexdigest()}"
    until(lambda: told in server.output(), 10, f"{who} {state}: {told}\n{server.tail()}")
    assert "may be written" not in server.output(), f"{who} {state}"
    # The kernel serves a confined program by an end of a pair, which tells of no reset.
    is_told = state == "reset" and (who != "confined" or world.mode == "kernel")
    assert ("was reset" in server.output()) == is_told, f"{who} {state}"
    server.stop()


def in_each_state(world, who, port, states=STATES):
    for port, state in enumerate(states, port):
        goes_on(world, who, state, port)


@test
def a_connection_in_any_state_is_kept_by_a_process_that_becomes_another_program(world):
    in_each_state(world, "exec", 7400)


@test
def a_connection_in_any_state_is_a_childs_when_its_maker_has_ended(world):
    in_each_state(world, "orphan", 7420)


@test
def a_connection_in_any_state_is_a_childs_when_its_maker_had_threads(world):
    in_each_state(world, "threaded", 7440)


@test
def bytes_that_a_thread_writes_as_its_process_ends_are_not_shifted(world):
    """The connection goes on, and the peer has the first so many bytes."""
    pattern = data_of("down", SIZE)
    for port in range(7230, 7230 + ENDS):
        server = started(world, port)
        with connected(world, port, server) as sock:
            sock.sendall(b"threaded writing\n")
            down = bytearray()
            with contextlib.suppress(TimeoutError):
                sock.settimeout(2)
                while chunk := sock.recv(65536):
                    down += chunk
                assert False, f"the end after {len(down)} bytes"
            sock.shutdown(socket.SHUT_WR)
            assert sock.recv(1) == b""
        assert down == (pattern * (len(down) // SIZE + 1))[: len(down)], f"{len(down)} bytes"
        assert down, server.tail()
        server.stop()


@test
def a_connection_in_any_state_is_a_childs_when_a_signal_has_ended_its_maker(world):
    in_each_state(world, "ended", 7460)


@test
def a_connection_in_any_state_goes_to_the_child_that_uses_it(world):
    in_each_state(world, "taker", 7480)


@test
def a_connection_in_any_state_is_kept_by_a_process_that_confines_itself(world):
    in_each_state(world, "confined", 7500)


@test
def urgent_data_that_was_not_read_goes_along(world):
    for start, who in enumerate(("orphan", "threaded", "ended", "taker")):
        # A child cannot take the byte while the connection is its maker's.
        states = URGENT[:2] if who == "taker" else URGENT
        for port, state in enumerate(states, 7530 + 10 * start):
            goes_on(world, who, state, port)


@test
def a_connection_that_was_made_without_waiting_in_connect_goes_along(world):
    for port, who in enumerate(("exec", "orphan", "threaded", "taker", "confined"), 7600):
        goes_on_outgoing(world, who, port)


def goes_on_outgoing(world, who, port):
    server = started(world, port)
    up = data_of("up", 50_000)
    with connected(world, port, server) as first:
        with world.at_peer():
            listener = socket.create_server((first.getsockname()[0], 0))
        with listener:
            listener.settimeout(20)
            first.sendall(f"{who} outgoing {listener.getsockname()[1]}\n".encode())
            sock, _ = listener.accept()
        with sock:
            sock.settimeout(20)
            until(lambda: "goes on" in server.output(), 20, f"{who}\n{server.tail()}")
            sock.sendall(up)
            sock.shutdown(socket.SHUT_WR)
            down = everything(sock)
    assert down == data_of("down", SIZE), f"{who}: {len(down)} bytes"
    told = f"got {len(up)} {hashlib.sha256(up).hexdigest()}"
    until(lambda: told in server.output(), 10, f"{who}: {told}\n{server.tail()}")
    server.stop()


@test
def a_connection_goes_to_the_child_that_counts_its_unread_bytes(world):
    goes_on(world, "taker", "counted", 7580)


@test
def grandchildren_use_a_connection_at_which_a_thread_of_their_parent_looks(world):
    assert_all_write(world, 7590, "plain", 1 + BRANCHES)


@test
def grandchildren_use_a_connection_that_their_parent_takes_over(world):
    assert_all_write(world, 7591, "alone", 1 + BRANCHES + BRANCHES // 10)


def assert_all_write(world, port, state, count):
    server = started(world, port)
    with connected(world, port, server) as sock:
        sock.sendall(f"branching {state}\n".encode())
        data = b""
        while not data.endswith(b"."):
            chunk = sock.recv(1000)
            assert chunk, f"the end after {len(data)} bytes"
            data += chunk
    assert data == b"x" * count + b".", f"{len(data)} bytes\n{server.tail()}"
    server.stop()

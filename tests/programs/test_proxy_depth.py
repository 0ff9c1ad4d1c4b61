"""`slipstack serve proxy` with misbehaving backends and clients, beside nginx with the same
backends."""

import os
import re
import socket
import struct
import threading
import time

from harness import test
from harness.process import until

from test_serve import ALONE, serve

BACKEND, PROXY, NGINX = 9000, 80, 8080
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


class Backend:
    """Answers each request by what its path names, a thread for each connection."""

    def __init__(self, world, port=BACKEND, name=b"one"):
        with world.at_peer():
            self.listener = socket.create_server((world.PEER, port), backlog=100)
        self.name, self.asked, self.active, self.most = name, [], 0, 0
        self.lock = threading.Lock()
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        while True:
            try:
                sock, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.serve, args=(sock,), daemon=True).start()

    def serve(self, sock):
        sock.settimeout(15)
        number = 0
        try:
            buffer = b""
            while True:
                while b"\r\n\r\n" not in buffer:
                    piece = sock.recv(65536)
                    if not piece:
                        return sock.close()
                    buffer += piece
                head, _, buffer = buffer.partition(b"\r\n\r\n")
                number += 1
                method, path = head.split()[:2]
                # Checks ask for /ok, at times of their own.
                weight = int(path != b"/ok")
                with self.lock:
                    self.asked.append((method + b" " + path, number))
                    self.active += weight
                    self.most = max(self.most, self.active)
                goes_on, buffer = getattr(self, "on_" + path.decode().strip("/").replace("-", "_"))(
                    sock, head, buffer
                )
                with self.lock:
                    self.active -= weight
                if not goes_on:
                    return sock.close()
        except OSError:
            sock.close()

    @staticmethod
    def body(sock, head, buffer):
        if b"chunked" in head.lower():
            while not buffer.endswith(b"0\r\n\r\n"):
                buffer += sock.recv(65536)
            return buffer, b""
        length = int((re.search(rb"content-length: (\d+)", head.lower()) or [0, 0])[1])
        while len(buffer) < length:
            piece = sock.recv(65536)
            if not piece:
                raise OSError("cut")
            buffer += piece
        return buffer[:length], buffer[length:]

    def says(self, sock, answer, goes_on=True, rest=b""):
        sock.sendall(answer)
        return goes_on, rest

    def on_ok(self, sock, head, buffer):
        return self.says(sock, OK, rest=buffer)

    def on_name(self, sock, head, buffer):
        return self.says(
            sock,
            b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(self.name), self.name),
            rest=buffer,
        )

    def on_busy(self, sock, head, buffer):
        time.sleep(0.6)
        return self.on_name(sock, head, buffer)

    def on_echo(self, sock, head, buffer):
        body, rest = self.body(sock, head, buffer)
        if b"chunked" in head.lower():
            return self.says(
                sock, b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + body, rest=rest
            )
        return self.says(
            sock, b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body), rest=rest
        )

    def on_continue(self, sock, head, buffer):
        sock.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        return self.on_echo(sock, head, buffer)

    def on_hints(self, sock, head, buffer):
        return self.says(sock, b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" + OK, rest=buffer)

    def on_early(self, sock, head, buffer):
        sock.sendall(
            b"HTTP/1.1 413 Content Too Large\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno"
        )
        sock.shutdown(socket.SHUT_WR)
        # If it were closed with bytes unread, nginx could read the reset before the answer.
        while sock.recv(1 << 16):
            pass
        return False, b""

    def on_cut_head(self, sock, head, buffer):
        return self.says(sock, b"HTTP/1.1 200 OK\r\nContent-Le", False)

    def on_cut_length(self, sock, head, buffer):
        return self.says(sock, b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n" + b"x" * 50, False)

    def on_cut_chunk(self, sock, head, buffer):
        return self.says(
            sock, b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n64\r\n" + b"x" * 50, False
        )

    def on_nothing(self, sock, head, buffer):
        return False, b""

    def on_once(self, sock, head, buffer):
        """Ends the connection at the second request on it."""
        return self.on_ok(sock, head, buffer) if self.asked[-1][1] == 1 else (False, b"")

    def on_reset(self, sock, head, buffer):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        return False, b""

    def on_reset_body(self, sock, head, buffer):
        sock.sendall(b"HTTP/1.0 200 OK\r\n\r\nhalf")
        time.sleep(0.2)
        return self.on_reset(sock, head, buffer)

    def on_until_end(self, sock, head, buffer):
        return self.says(sock, b"HTTP/1.0 200 OK\r\n\r\nall of it", False)

    def on_garbage(self, sock, head, buffer):
        return self.says(sock, b"SSH-2.0-OpenSSH_9.2\r\n\r\n", False)

    def on_both(self, sock, head, buffer):
        return self.says(
            sock,
            (
                b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding:"
                b" chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"
            ),
            False,
        )

    def on_long_head(self, sock, head, buffer):
        return self.says(sock, b"HTTP/1.1 200 OK\r\nX: " + b"x" * 100_000 + b"\r\n\r\n", False)

    def on_trickle(self, sock, head, buffer):
        for byte in OK:
            sock.sendall(bytes([byte]))
            time.sleep(0.01)
        return True, buffer

    def on_empty(self, sock, head, buffer):
        return self.says(sock, b"HTTP/1.1 204 No Content\r\n\r\n", rest=buffer)

    def on_unchanged(self, sock, head, buffer):
        return self.says(
            sock, b"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n", rest=buffer
        )

    def on_head(self, sock, head, buffer):
        return self.says(sock, b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", rest=buffer)


def req(path, method=b"GET", *fields, body=b"", version=b"1.1"):
    return b"%s /%s HTTP/%s\r\nHost: x\r\n%s\r\n%s" % (
        method,
        path,
        version,
        b"".join(field + b"\r\n" for field in fields),
        body,
    )


CHUNKS = b"3\r\nabc\r\n5;x=y\r\ndefgh\r\n0\r\n\r\n"
# The client's bytes, our answer, and nginx's if it differs, with the reason. An answer is the
# statuses, the bytes of the last body, and the connection afterwards: it stays, ends, or is reset.
ROWS = {
    "ok": (req(b"ok"), "200 ok stays"),
    "pipelined": (req(b"ok") + req(b"name") + req(b"ok"), "200 200 200 ok stays"),
    "echo": (req(b"echo", b"POST", b"Content-Length: 5", body=b"hello"), "200 hello stays"),
    "chunks": (
        req(b"echo", b"POST", b"Transfer-Encoding: chunked", body=CHUNKS),
        "200 abcdefgh stays",
    ),
    "head": (req(b"head", b"HEAD") + req(b"ok"), "200 200 ok stays"),
    "204": (req(b"empty") + req(b"ok"), "204 200 ok stays"),
    "304": (req(b"unchanged") + req(b"ok"), "304 200 ok stays"),
    "interim": (req(b"hints"), "103 200 ok stays"),
    "interim to 1.0": (
        req(b"hints", version=b"1.0"),
        "200 ok ends",
        "103 200 ok stays",
    ),  # RFC 9110, section 15.2: HTTP/1.0 knows no interim responses
    "continue": (
        req(b"continue", b"POST", b"Expect: 100-continue", b"Content-Length: 5", body=b"hello"),
        "100 200 hello stays",
        "100 100 200 hello stays",
    ),  # nginx says it of its own accord too
    "byte by byte": (req(b"trickle"), "200 ok stays"),
    "until the end": (
        req(b"until-end"),
        "200 all of it ends",
        "200 all of it stays",
    ),  # nginx makes chunks of it
    "close": (req(b"ok", b"GET", b"Connection: close"), "200 ok ends"),
    "cut head": (req(b"cut-head"), "502 stays"),
    "cut length": (req(b"cut-length"), "200 cut"),
    "cut chunk": (req(b"cut-chunk"), "200 cut"),
    "no answer": (req(b"nothing"), "502 stays"),
    "no answer to a post": (req(b"nothing", b"POST", b"Content-Length: 0"), "502 stays"),
    "reset": (req(b"reset"), "502 stays"),
    "reset in the middle": (req(b"reset-body"), "200 cut"),
    "garbage": (req(b"garbage"), "502 stays", "stays"),  # nginx takes it for HTTP/0.9
    "both lengths": (
        req(b"both"),
        "502 stays",
        "200 ok stays",
    ),  # RFC 9112, section 6.3: two servers could read it differently
    "long head": (req(b"long-head"), "502 stays"),
    "early answer": (
        req(b"early", b"POST", b"Content-Length: 100000", body=b"x" * 1000),
        "413 no ends",
    ),
}


def outcome(connect, request, wanted, seconds=10):
    """The result of a request: `stays` if `wanted`, and nothing more for a while, or in `seconds`
    nothing else, has come."""
    sock = connect()
    sock.settimeout(0.3)
    sock.sendall(request)
    got, end, end_at = b"", "stays", time.monotonic() + seconds
    while end == "stays":
        try:
            piece = sock.recv(65536)
            if not piece:
                end = "ends"
            got += piece
        except ConnectionResetError:
            end = "reset"
        except TimeoutError:
            if told(got, end) == wanted or time.monotonic() > end_at:
                break
    sock.close()
    return told(got, end)


def told(got, end):
    codes, body = [], b""
    while m := re.match(rb"HTTP/1\.[01] (\d{3})[^\r]*\r\n((?:[^\r\n]+\r\n)*)\r\n", got):
        codes.append(m[1].decode())
        fields, got = m[2].lower(), got[m.end() :]
        length = re.search(rb"content-length: (\d+)", fields)
        if m[1][:1] == b"1" or m[1] in (b"204", b"304"):
            continue
        if b"chunked" in fields:
            body = b""
            while (c := re.match(rb"([0-9a-f]+)[^\r]*\r\n", got)) and len(got) >= c.end() + int(
                c[1], 16
            ) + 2:
                size = int(c[1], 16)
                body, got = body + got[c.end() : c.end() + size], got[c.end() + size + 2 :]
                if not size:
                    break
            else:
                return " ".join([*codes, "cut"])
        elif length:
            size = int(length[1])
            if len(got) < size and not got:
                continue
            if len(got) < size:
                return " ".join([*codes, "cut"])
            # An answer to HEAD has a length and no body.
            if got.startswith(b"HTTP/1.1"):
                continue
            body, got = got[:size], got[size:]
        else:
            if end == "reset":
                return " ".join([*codes, "cut"])
            body, got = got, b""
    text = [] if not body or codes[-1:] == ["502"] else [body.decode()]
    return " ".join([*codes, *text, end])


def all_of(connect, wanted):
    got = {}

    def one(name, request):
        got[name] = outcome(connect, request, wanted[name])

    threads = [threading.Thread(target=one, args=(name, row[0])) for name, row in ROWS.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    return got


@test(modes=ALONE)
def exchanges_end_as_behind_nginx_or_better(world):
    backend = Backend(world)
    conf = world.folder / "nginx.conf"
    conf.write_text(
        "daemon off; master_process off; user root; error_log stderr; pid"
        f" {world.folder}/nginx.pid; events {{ worker_connections 1000; }}\nhttp {{ access_log off;"
        f" upstream b {{ server {world.PEER}:{BACKEND} max_fails=0; keepalive 16; }}\nserver {{"
        f" listen {world.PEER}:{NGINX}; location / {{ proxy_pass http://b; proxy_http_version 1.1;"
        ' proxy_set_header Connection ""; proxy_request_buffering off; proxy_buffering off; } }'
        " }\n"
    )
    world.peer("nginx", "-e", "stderr", "-c", conf)
    world.wait_port(NGINX, address=world.PEER)
    serve(
        world, "proxy", "--port", PROXY, "--check-every", 0, "--backend", f"{world.PEER}:{BACKEND}"
    )

    def beside():
        with world.peer_ns.inside():
            return socket.create_connection((world.PEER, NGINX), timeout=10)

    ours_wanted = {name: row[1] for name, row in ROWS.items()}
    theirs_wanted = {name: row[-1] for name, row in ROWS.items()}
    ours = all_of(lambda: world.connect(PROXY), ours_wanted)
    theirs = all_of(beside, theirs_wanted)
    wrong = []
    for name in ROWS:
        if ours[name] != ours_wanted[name]:
            wrong.append(f"{name}: {ours[name]}, not {ours_wanted[name]}")
        if theirs[name] != theirs_wanted[name]:
            wrong.append(f"{name}: nginx: {theirs[name]}, not {theirs_wanted[name]}")
    assert not wrong and backend.asked, "\n".join(wrong)


@test(modes=ALONE)
def only_repeatable_requests_are_sent_again(world):
    backend = Backend(world)
    serve(
        world, "proxy", "--port", PROXY, "--check-every", 0, "--backend", f"{world.PEER}:{BACKEND}"
    )
    for method, statuses, asked in ((b"GET", "200 ok stays", 2), (b"POST", "502 stays", 1)):
        fields = () if method == b"GET" else (b"Content-Length: 0",)
        # Three kept connections: the request is sent over one of them, which ends, then over a
        # new one, not over the others.
        held = [world.connect(PROXY) for _ in range(3)]
        for sock in held:
            sock.sendall(req(b"busy"))
        for sock in held:
            sock.settimeout(10)
            assert sock.recv(1000).startswith(b"HTTP/1.1 200")
        backend.asked.clear()
        got = outcome(lambda: world.connect(PROXY), req(b"once", method, *fields), statuses)
        assert got == statuses, (method, got, backend.asked)
        assert len(backend.asked) == asked, backend.asked
        for sock in held:
            sock.close()


@test(modes=ALONE)
def the_least_loaded_backend_is_next_and_one_that_flaps_is_passed_over(world):
    slow, fast = Backend(world, 9001, b"slow"), Backend(world, 9002, b"fast")
    words = ["--backend", f"{world.PEER}:9001", "--backend", f"{world.PEER}:9002"]
    serve(
        world,
        "proxy",
        "--port",
        PROXY,
        "--balance",
        "least-connections",
        "--check-every",
        1,
        "--check-path",
        "/ok",
        *words,
    )

    def ask(path):
        close = req(path, b"GET", b"Connection: close")
        return outcome(lambda: world.connect(PROXY), close, "its end")

    held = [threading.Thread(target=ask, args=(b"busy",)) for _ in range(8)]
    for thread in held:
        thread.start()
    for thread in held:
        thread.join()
    assert (slow.most, fast.most) == (4, 4), "eight at once are four for each"
    # While one is at work on a request, the others all go to the other one.
    goes_on = threading.Event()
    slow.on_name = lambda sock, head, buffer: (
        goes_on.wait(20),
        Backend.on_name(slow, sock, head, buffer),
    )[1]
    held = [threading.Thread(target=ask, args=(b"name",)) for _ in range(2)]
    for thread in held:
        thread.start()
    # The proxy counts the other one until it has ended.
    until(
        lambda: slow.active == 1 and sum(thread.is_alive() for thread in held) == 1,
        10,
        "one of two requests is held",
    )
    assert [ask(b"name") for _ in range(6)] == ["200 fast ends"] * 6
    goes_on.set()
    for thread in held:
        thread.join()
    del slow.on_name
    # A backend that answers its checks badly gets nothing; then well again, then badly.
    for _ in range(2):
        fast.on_ok = lambda sock, head, buffer: Backend.says(
            fast, sock, b"HTTP/1.1 503 Unavailable\r\nContent-Length: 0\r\n\r\n", rest=buffer
        )
        until(
            lambda: {ask(b"name") for _ in range(4)} == {"200 slow ends"}, 10, "it is passed over"
        )
        del fast.on_ok
        until(lambda: "200 fast ends" in {ask(b"name") for _ in range(4)}, 10, "it is found well")


@test(modes=ALONE)
def slow_ends_and_half_closes_lose_nothing(world):
    backend = Backend(world)
    serve(
        world,
        "proxy",
        "--port",
        PROXY,
        "--check-every",
        0,
        "--answer-timeout",
        1,
        "--backend",
        f"{world.PEER}:{BACKEND}",
    )
    # A client that closes its side after its request gets the answer.
    sock = world.connect(PROXY)
    sock.sendall(req(b"busy"))
    sock.shutdown(socket.SHUT_WR)
    assert sock.recv(1000).endswith(b"one") and sock.recv(1) == b""
    # The request's body comes more slowly than the backend may take to answer.
    data = os.urandom(12)
    sock = world.connect(PROXY)
    sock.sendall(req(b"echo", b"POST", b"Content-Length: 12"))
    for byte in data:
        sock.sendall(bytes([byte]))
        time.sleep(0.12)
    assert sock.recv(1000).endswith(data)
    # The backend answers before the body has come; the client continues to send it.
    sock = world.connect(PROXY)
    sock.sendall(req(b"early", b"POST", b"Content-Length: 100000"))
    answer = sock.recv(1000)
    assert answer.startswith(b"HTTP/1.1 413 ") and answer.endswith(b"no")
    try:
        for _ in range(10):
            sock.sendall(b"x" * 100)
            time.sleep(0.02)
    except (ConnectionResetError, BrokenPipeError):
        pass
    sock.close()
    # A client that reads a long answer slowly, both framed and in chunks.
    big = os.urandom(2_000_000)
    for framing in (b"Content-Length: %d" % len(big), b"Transfer-Encoding: chunked"):
        sock = world.connect(PROXY)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
        chunked = framing.startswith(b"T")
        body = b"%x\r\n%s\r\n0\r\n\r\n" % (len(big), big) if chunked else big
        sender = threading.Thread(
            target=sock.sendall, args=(req(b"echo", b"POST", framing, body=body),)
        )
        sender.start()
        got = b""
        while not got.endswith(body[-100:]):
            piece = sock.recv(16384)
            assert piece, len(got)
            got += piece
            if len(got) < 400_000:
                time.sleep(0.01)
        assert got.endswith(body)
        sender.join()
        sock.close()

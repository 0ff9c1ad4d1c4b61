"""A small HTTP client on a kernel socket; returns exactly the bytes that came."""

import socket


class Connection:
    def __init__(self, sock):
        self.sock = sock
        self.buffer = b""

    def get(self, path="/hello", close=False, host="test"):
        """Status and body of one request."""
        kind = "close" if close else "keep-alive"
        self.sock.sendall(
            f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: {kind}\r\n\r\n".encode()
        )
        return self.response()

    def response(self):
        while b"\r\n\r\n" not in self.buffer:
            self._more()
        head, _, self.buffer = self.buffer.partition(b"\r\n\r\n")
        lines = head.decode().split("\r\n")
        status = int(lines[0].split()[1])
        fields = {
            name.lower(): value.strip()
            for name, _, value in (line.partition(":") for line in lines[1:])
        }
        if "content-length" in fields:
            length = int(fields["content-length"])
            while len(self.buffer) < length:
                self._more()
            body, self.buffer = self.buffer[:length], self.buffer[length:]
            return status, body
        body = self.buffer
        while True:
            chunk = self.sock.recv(65536)
            if not chunk:
                return status, body
            body += chunk

    def _more(self):
        chunk = self.sock.recv(262144)
        assert chunk, f"the connection ended after {len(self.buffer)} bytes of an answer"
        self.buffer += chunk

    def close(self):
        self.sock.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def get(world, port, path="/hello", address=None, seconds=10):
    with Connection(world.connect(port, seconds, address)) as connection:
        return connection.get(path, close=True)


def is_reset(sock, seconds):
    """True when the connection is reset within the time; data before that is read away."""
    sock.settimeout(seconds)
    try:
        while sock.recv(65536):
            pass
    except (ConnectionResetError, BrokenPipeError):
        return True
    except socket.timeout:
        return False
    return False

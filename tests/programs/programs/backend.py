"""An HTTP/1.1 backend with persistent connections: answers with its name, the number of
connections so far, and the body it received; to /by with the protocol
that the proxy names."""

import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

NAME = sys.argv[3]
connections = 0


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def setup(self):
        global connections
        connections += 1
        super().setup()

    def do_GET(self):
        if self.path == "/by":
            return self.answer(str(self.headers.get("X-Forwarded-Proto")).encode())
        self.answer(f"{NAME} {connections} {self.headers.get('X-Forwarded-For')}".encode())

    def do_POST(self):
        body = b""
        if self.headers.get("Transfer-Encoding") == "chunked":
            while size := int(self.rfile.readline(), 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
        else:
            body = self.rfile.read(int(self.headers["Content-Length"]))
        self.answer(body)

    def answer(self, body):
        self.send_response(200)
        if self.path == "/chunked":
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for at in range(0, len(body), 1000):
                piece = body[at : at + 1000]
                self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            self.wfile.write(b"0\r\n\r\n")
        else:
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    def log_message(self, *_):
        pass


ThreadingHTTPServer.request_queue_size = 100
ThreadingHTTPServer((sys.argv[1], int(sys.argv[2])), Handler).serve_forever()

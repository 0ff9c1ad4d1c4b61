"""An HTTP server for programs that are proxies or clients: GET returns 64 bytes or a file, POST
the SHA-256 of its body."""

import hashlib
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def answer(self, body):
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        name = self.path.strip("/").split("?")[0]
        path = Path(sys.argv[2]) / name
        self.answer(path.read_bytes() if name and path.is_file() else b"x" * 64)

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.answer(hashlib.sha256(body).hexdigest().encode())

    def log_message(self, *_):
        pass


ThreadingHTTPServer.daemon_threads = True
ThreadingHTTPServer.request_queue_size = 128
server = ThreadingHTTPServer(("0.0.0.0", int(sys.argv[1])), Handler)
print("ready", flush=True)
server.serve_forever()

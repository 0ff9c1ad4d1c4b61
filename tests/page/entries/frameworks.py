"""Servers written in Python with frameworks of their own event loops and processes."""

from page import Outcome, entry
from page import tools

# Forked processes end with the first one.
HEAD = """
import ctypes, hashlib, os, signal, sys
def fork():
    pid = os.fork()
    if pid == 0:
        ctypes.CDLL(None).prctl(1, signal.SIGTERM)
    return pid
ADDRESS, PORT, FILE = sys.argv[1], int(sys.argv[2]), sys.argv[3]
DATA = open(FILE, "rb").read()
"""

TORNADO = """
import tornado.httpserver, tornado.ioloop, tornado.netutil, tornado.web
class Page(tornado.web.RequestHandler):
    def get(self):
        self.write(DATA)
    def post(self):
        self.write(hashlib.sha256(self.request.body).hexdigest())
sockets = tornado.netutil.bind_sockets(PORT, ADDRESS)
fork()
server = tornado.httpserver.HTTPServer(tornado.web.Application([("/.*", Page)]))
server.add_sockets(sockets)
tornado.ioloop.IOLoop.current().start()
"""

TWISTED = """
from twisted.internet import reactor
from twisted.web import resource, server
class Page(resource.Resource):
    isLeaf = True
    def render_GET(self, request):
        return DATA
    def render_POST(self, request):
        return hashlib.sha256(request.content.read()).hexdigest().encode()
reactor.listenTCP(PORT, server.Site(Page()), interface=ADDRESS)
reactor.run()
"""

GEVENT = """
from gevent import monkey
monkey.patch_all()
from gevent.pywsgi import WSGIServer
def application(environ, start_response):
    start_response("200 OK", [])
    if environ["REQUEST_METHOD"] == "GET":
        return [DATA]
    return [hashlib.sha256(environ["wsgi.input"].read()).hexdigest().encode()]
server = WSGIServer((ADDRESS, PORT), application, log=None)
server.start()
fork()
server.serve_forever()
"""

AIOHTTP = """
from aiohttp import web
async def down(request):
    return web.Response(body=DATA)
async def up(request):
    return web.Response(text=hashlib.sha256(await request.read()).hexdigest())
_ = fork() and fork()
application = web.Application(client_max_size=9_000_000)
application.add_routes([web.get("/{name}", down), web.post("/{name}", up)])
web.run_app(application, host=ADDRESS, port=PORT, reuse_port=True, print=None)
"""

EVENTLET = """
import eventlet
eventlet.monkey_patch()
from eventlet import wsgi
def application(environ, start_response):
    start_response("200 OK", [])
    if environ["REQUEST_METHOD"] == "GET":
        return [DATA]
    return [hashlib.sha256(environ["wsgi.input"].read()).hexdigest().encode()]
wsgi.server(eventlet.listen((ADDRESS, PORT)), application, log_output=False)
"""

FORKING = """
import http.server, socketserver
class Page(http.server.BaseHTTPRequestHandler):
    def answer(self, data):
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)
    def do_GET(self):
        self.answer(DATA)
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.answer(hashlib.sha256(body).hexdigest().encode())
    def log_message(self, *_):
        pass
class Server(socketserver.ForkingMixIn, http.server.HTTPServer):
    allow_reuse_address = True
Server((ADDRESS, PORT), Page).serve_forever()
"""

SENDING = """
import multiprocessing, socket
from multiprocessing.reduction import recv_handle, send_handle
def serve(pipe):
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)
    while True:
        conn = socket.socket(fileno=recv_handle(pipe))
        reader = conn.makefile("rb")
        first = reader.readline()
        if not first:
            continue
        length = 0
        while (line := reader.readline()) not in (b"\\r\\n", b""):
            if line.lower().startswith(b"content-length:"):
                length = int(line.split(b":")[1])
        body = DATA
        if first.startswith(b"POST"):
            body = hashlib.sha256(reader.read(length)).hexdigest().encode()
        conn.sendall(b"HTTP/1.1 200 OK\\r\\nConnection: close\\r\\n")
        conn.sendall(b"Content-Length: %d\\r\\n\\r\\n" % len(body) + body)
        reader.close()
        conn.close()
listener = socket.create_server((ADDRESS, PORT))
workers = []
for _ in range(2):
    ours, theirs = multiprocessing.Pipe()
    worker = multiprocessing.Process(target=serve, args=(theirs,), daemon=True)
    worker.start()
    workers.append((ours, worker))
for turn in range(1 << 30):
    conn, _ = listener.accept()
    pipe, worker = workers[turn % 2]
    send_handle(pipe, conn.fileno(), worker.pid)
    conn.close()
"""


def served(world, program, rounds=4):
    path = tools.blob(world)
    script = world.folder / "serve.py"
    script.write_text(HEAD + program)
    server = world.stack("/usr/bin/python3", script, world.address, 8080, path)
    world.wait_port(8080, 20, process=server)
    url = f"http://{world.address}:8080/big"
    for _ in range(rounds):
        tools.fetch(world, url, path)
        tools.upload(world, url, path)
    rate = 3 * tools.wrk(world, url, 4)
    return Outcome(f"3 MB down, 3 MB up, {rounds} times", rate, "MB/s down")


@entry("Tornado, two processes", packages="python3-tornado")
def tornado(world):
    return served(world, TORNADO)


@entry("Twisted", packages="python3-twisted")
def twisted(world):
    return served(world, TWISTED)


@entry("gevent, two processes", packages="python3-gevent")
def gevent(world):
    return served(world, GEVENT)


@entry("aiohttp, three processes, reuse_port", packages="python3-aiohttp")
def aiohttp(world):
    return served(world, AIOHTTP)


@entry("eventlet", packages="python3-eventlet")
def eventlet(world):
    return served(world, EVENTLET)


@entry("Python ForkingMixIn, a child each", packages="python3")
def forking(world):
    return served(world, FORKING, 8)


@entry("Python multiprocessing, connections sent", packages="python3")
def sending(world):
    return served(world, SENDING, 8)

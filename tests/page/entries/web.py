"""Web servers, proxies and application servers."""

import sys

from harness.nginx import Nginx
from harness.process import until
from page import Outcome, entry
from page import tools
from page.apache import HEAD

DOWN = "a file of 3 MB down"
STORED = "3 MB down; 3 MB up, stored and fetched"
BOTH = "3 MB down, 3 MB up"
PHP = """[global]
error_log = {folder}/fpm.log
daemonize = no
[www]
user = www-data
group = www-data
listen = {listen}
pm = static
pm.max_children = 2
"""


def served(world, port, path, scheme="http", checked=DOWN, up=None):
    """The usual check of a server of files, and its rate. `up`: a function that sends a file to the
    server and compares what it has there."""
    base = f"{scheme}://{world.address}:{port}"
    tools.fetch(world, f"{base}/big.bin", path)
    if up is not None:
        up(base)
    return Outcome(checked, tools.wrk(world, f"{base}/small.txt"), "requests/s")


def stored(world, port, path, **keywords):
    """The same of a server that files can be put to, in the folder of `dav`."""

    def up(base):
        tools.store(world, f"{base}/dav/up.bin", tools.blob(world, "up.bin"))

    return served(world, port, path, checked=STORED, up=up, **keywords)


def dav(root):
    """A folder that a server may write to."""
    folder = root / "dav"
    folder.mkdir()
    folder.chmod(0o777)
    return folder


def site(world):
    folder = world.folder / "www"
    path = tools.blob(world, "www/big.bin")
    folder.chmod(0o755)
    (folder / "small.txt").write_text("x" * 64)
    return folder, path


def nginx(world, **options):
    server = Nginx(world, **options)
    return server, server.folder / "www" / "big.bin"


def putting(world):
    """Lines of nginx's configuration: files can be put to /dav."""
    dav(world.folder)
    return f"location /dav/ {{ root {world.folder}; dav_methods PUT; client_max_body_size 9m; }}"


@entry("nginx, one worker", packages="nginx-light wrk curl")
def nginx_one(world):
    server, path = nginx(world, more=putting(world))
    return stored(world, server.port, path)


@entry("nginx, two workers, reuseport", packages="nginx-light wrk curl")
def nginx_two(world):
    server, path = nginx(world, workers=2, listen="8080 reuseport", more=putting(world))
    return stored(world, server.port, path)


@entry("nginx with TLS", packages="nginx-light wrk curl openssl")
def nginx_tls(world):
    _, key, cert = tools.certificate(world)
    more = f"listen 8443 ssl; ssl_certificate {cert}; ssl_certificate_key {key};"
    server, path = nginx(world, more=f"{more} {putting(world)}")
    world.wait_port(8443, process=server.process)
    return stored(world, 8443, path, scheme="https")


@entry("nginx as a proxy, connections kept", packages="nginx-light wrk curl")
def nginx_proxy(world):
    base = tools.digest_server(world, 9000)
    more = (
        "location /up { proxy_http_version 1.1; proxy_set_header Connection '';"
        f" client_max_body_size 9m; proxy_pass {base}; }}"
    )
    server, _ = nginx(world, more=more)
    path = tools.blob(world, "up.bin")
    url = f"http://{world.address}:{server.port}/up"
    tools.upload(world, url, path)
    tools.fetch(world, f"{url}.bin", path)
    return Outcome(BOTH, tools.wrk(world, url, 8), "requests/s")


@entry("nginx with PHP-FPM", packages="nginx-light php-fpm wrk curl")
def nginx_php(world):
    folder = world.folder / "php"
    folder.mkdir()
    folder.chmod(0o755)
    (folder / "hash.php").write_text(
        '<?php echo $_SERVER["REQUEST_METHOD"] == "POST" ? hash("sha256",'
        ' file_get_contents("php://input")) : "hello";'
    )
    conf = folder / "fpm.conf"
    conf.write_text(PHP.format(folder=folder, listen=f"{world.address}:9001"))
    fpm = world.stack(
        tools.sbin("php-fpm8.2"),
        "-F",
        "-y",
        conf,
        "-c",
        "/etc/php/8.2/fpm/php.ini",
        "-d",
        "post_max_size=16M",
    )
    world.wait_port(9001, process=fpm)
    more = (
        "client_max_body_size 9m; location ~ \\.php$ { include /etc/nginx/fastcgi_params;"
        f" fastcgi_param SCRIPT_FILENAME {folder}/hash.php; fastcgi_pass {world.address}:9001; }}"
    )
    server, _ = nginx(world, more=more)
    url = f"http://{world.address}:{server.port}/hash.php"
    tools.upload(world, url, tools.blob(world, "up.bin"))
    return Outcome("3 MB up", tools.wrk(world, url, 8), "requests/s")


HAPROXY = """global
  nbthread 2
defaults
  mode http
  timeout client 20s
  timeout server 20s
  timeout connect 5s
frontend web
  bind {address}:8080
  default_backend servers
backend servers
  http-reuse always
  server one {peer}:9000
"""


@entry("haproxy, nbthread 2", packages="haproxy wrk curl")
def haproxy(world):
    tools.digest_server(world, 9000)
    conf = world.folder / "haproxy.cfg"
    conf.write_text(HAPROXY.format(address=world.address, peer=world.peer_address))
    server = world.stack(tools.sbin("haproxy"), "-db", "-f", conf)
    world.wait_port(8080, process=server)
    path = tools.blob(world)
    url = f"http://{world.address}:8080"
    tools.fetch(world, f"{url}/big.bin", path)
    tools.upload(world, f"{url}/up", path)
    return Outcome(BOTH, tools.wrk(world, f"{url}/", 8), "requests/s")


APACHE = HEAD + """\
DocumentRoot {www}
DavLockDB {folder}/dav/lock
KeepAlive On
MaxKeepAliveRequests 0
StartServers 2
{limits}
<Directory {www}>
Require all granted
</Directory>
<Directory {www}/dav>
Dav On
</Directory>
"""


def apache(world, mpm, limits):
    folder, path = site(world)
    dav(folder)
    dav(world.folder)
    names = [f"mpm_{mpm}", "authz_core", "dav", "dav_fs"]
    modules = "\n".join(
        f"LoadModule {name}_module /usr/lib/apache2/modules/mod_{name}.so" for name in names
    )
    conf = world.folder / "apache.conf"
    conf.write_text(APACHE.format(folder=world.folder, www=folder, modules=modules, limits=limits))
    server = world.stack(tools.sbin("apache2"), "-D", "FOREGROUND", "-f", conf)
    world.wait_port(8080, process=server)
    return stored(world, 8080, path)


@entry("Apache, event", packages="apache2-bin wrk curl")
def apache_event(world):
    return apache(world, "event", "ThreadsPerChild 25\nMaxRequestWorkers 50")


@entry("Apache, prefork", packages="apache2-bin wrk curl")
def apache_prefork(world):
    return apache(world, "prefork", "MaxRequestWorkers 20")


@entry("lighttpd", packages="lighttpd wrk curl")
def lighttpd(world):
    folder, path = site(world)
    tools.digest_server(world, 9000)
    conf = world.folder / "lighttpd.conf"
    conf.write_text(
        f'server.document-root = "{folder}"\nserver.port = 8080\n'
        'server.modules = ("mod_proxy")\n'
        "server.max-keep-alive-requests = 1000000\n"
        '$HTTP["url"] =~ "^/up" {\n  proxy.server = ("" => (("host" => '
        f'"{world.peer_address}", "port" => 9000)))\n}}\n'
    )
    server = world.stack(tools.sbin("lighttpd"), "-D", "-f", conf)
    world.wait_port(8080, process=server)

    def up(base):
        tools.upload(world, f"{base}/up", tools.blob(world, "up.bin"))

    return served(world, 8080, path, checked=f"{BOTH}, to a server behind it", up=up)


@entry("varnish", packages="varnish wrk curl", timeout=120)
def varnish(world):
    tools.digest_server(world, 9000)
    path = tools.blob(world)
    words = [
        "-F",
        "-n",
        world.folder / "varnish",
        "-a",
        f"{world.address}:8080",
        "-b",
        f"{world.peer_address}:9000",
        "-s",
        "malloc,64m",
    ]
    server = world.stack(tools.sbin("varnishd"), *words, "-p", "thread_pools=1", "-j", "none")
    world.wait_port(8080, 40, process=server)
    url = f"http://{world.address}:8080"
    tools.fetch(world, f"{url}/big.bin", path)
    tools.upload(world, f"{url}/up", path)
    return Outcome(BOTH, tools.wrk(world, f"{url}/"), "requests/s")


@entry("squid", packages="squid wrk curl", timeout=120)
def squid(world):
    base = tools.digest_server(world, 9000)
    path = tools.blob(world)
    folder = world.folder / "squid"
    folder.mkdir()
    folder.chmod(0o777)
    conf = folder / "squid.conf"
    conf.write_text(
        f"http_port {world.address}:3128\nhttp_access allow all\npid_filename"
        f" {folder}/pid\ncache_log {folder}/cache.log\naccess_log none\ncoredump_dir"
        f" {folder}\nshutdown_lifetime 1 second\npinger_enable off\nnetdb_filename none\n"
    )
    server = world.stack(tools.sbin("squid"), "-N", "-f", conf)
    world.wait_port(3128, 30, process=server)
    proxy = ["-x", f"http://{world.address}:3128"]
    tools.fetch(world, f"{base}/big.bin", path, *proxy)
    tools.upload(world, f"{base}/up", path, *proxy)
    return Outcome(BOTH, tools.proxied(world, 3128, f"{base}/"), "requests/s")


@entry("tinyproxy", packages="tinyproxy curl")
def tinyproxy(world):
    base = tools.digest_server(world, 9000)
    path = tools.blob(world)
    conf = world.folder / "tinyproxy.conf"
    conf.write_text(
        f"Port 8888\nListen {world.address}\nTimeout 20\nMaxClients 50\nLogLevel Error\n"
    )
    server = world.stack("tinyproxy", "-d", "-c", conf)
    world.wait_port(8888, process=server)
    proxy = ["-x", f"http://{world.address}:8888"]
    tools.fetch(world, f"{base}/big.bin", path, *proxy)
    tools.upload(world, f"{base}/up", path, *proxy)
    rate = tools.ab(world, f"{base}/", 4, "-X", f"{world.address}:8888")
    return Outcome(BOTH, rate, "requests/s")


@entry("h2o", packages="h2o nghttp2-client curl")
def h2o(world):
    folder, path = site(world)
    conf = world.folder / "h2o.conf"
    conf.write_text(
        "user: root\nnum-threads: 2\nlisten: 8080\nhosts:\n  default:\n    paths:\n      /:\n     "
        f"   file.dir: {folder}\n"
    )
    server = world.stack("h2o", "-c", conf)
    world.wait_port(8080, process=server)
    tools.fetch(world, f"http://{world.address}:8080/big.bin", path, "--http2-prior-knowledge")
    return served(world, 8080, path)


@entry("nghttpd and h2load (HTTP/2)", packages="nghttp2-server nghttp2-client")
def nghttpd(world):
    folder, path = site(world)
    server = world.stack("nghttpd", "--no-tls", "-d", folder, 8080)
    world.wait_port(8080, process=server)
    url = f"http://{world.address}:8080"
    tools.fetch(world, f"{url}/big.bin", path, "--http2-prior-knowledge")
    text = world.peer("h2load", "-n", 10000, "-c", 8, "-m", 8, f"{url}/small.txt").finish(40)
    assert "10000 succeeded" in text, text
    rate = float(text.split("finished in")[1].split(",")[1].split()[0])
    return Outcome(DOWN, rate, "requests/s")


@entry("caddy", packages="caddy curl")
def caddy(world):
    folder, path = site(world)
    server = world.stack(
        "caddy",
        "file-server",
        "--root",
        folder,
        "--listen",
        f"{world.address}:8080",
        env={"HOME": world.folder},
    )
    world.wait_port(8080, process=server)
    return served(world, 8080, path)


WSGI = """import hashlib
def app(environ, start):
    if environ["REQUEST_METHOD"] == "POST":
        body = environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"]))
        body = hashlib.sha256(body).hexdigest().encode()
    else:
        body = b"hello"
    start("200 OK", [("Content-Length", str(len(body)))])
    return [body]
"""
ASGI = """import hashlib
async def app(scope, receive, send):
    if scope["type"] != "http":
        return
    body, more = b"", True
    while more:
        part = await receive()
        body += part.get("body", b"")
        more = part.get("more_body", False)
    body = hashlib.sha256(body).hexdigest().encode() if scope["method"] == "POST" else b"hello"
    headers = [(b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})
"""


def application(world, text, *words, rate=tools.wrk):
    (world.folder / "web.py").write_text(text)
    return application_served(world, world.stack(*words, cwd=world.folder), rate=rate)


def application_served(world, server, seconds=20, rate=tools.wrk):
    world.wait_port(8000, seconds, process=server)
    url = f"http://{world.address}:8000/"
    tools.upload(world, url, tools.blob(world, "up.bin"))
    return Outcome("3 MB up", rate(world, url, 8), "requests/s")


@entry("gunicorn, two workers", packages="gunicorn wrk curl")
def gunicorn(world):
    return application(world, WSGI, "gunicorn", "-w", 2, "-b", "0.0.0.0:8000", "web:app")


@entry("gunicorn, threads", packages="gunicorn wrk curl")
def gunicorn_threads(world):
    return application(
        world, WSGI, "gunicorn", "-w", 1, "--threads", 4, "-b", "0.0.0.0:8000", "web:app"
    )


@entry("uWSGI, two processes", packages="uwsgi-core uwsgi-plugin-python3 wrk curl")
def uwsgi(world):
    words = [
        "--plugin",
        "python3",
        "--http-socket",
        "0.0.0.0:8000",
        "--wsgi-file",
        "web.py",
        "--callable",
        "app",
    ]
    return application(
        world,
        WSGI,
        "uwsgi",
        *words,
        "--processes",
        2,
        "--master",
        "--die-on-term",
        "--disable-logging",
        "--need-app",
        rate=tools.ab,
    )


@entry("uvicorn with uvloop", packages="python3-uvicorn python3-uvloop wrk curl")
def uvicorn(world):
    words = ["--host", "0.0.0.0", "--port", 8000, "--loop", "uvloop", "--no-access-log"]
    return application(world, ASGI, sys.executable, "-m", "uvicorn", *words, "web:app")


@entry("hypercorn, two workers", packages="python3-hypercorn wrk curl")
def hypercorn(world):
    return application(world, ASGI, "hypercorn", "-b", "0.0.0.0:8000", "-w", 2, "web:app")


@entry("Python http.server", packages="python3 wrk curl")
def python_http(world):
    folder, path = site(world)
    server = world.stack(sys.executable, "-m", "http.server", 8000, "-d", folder, "-p", "HTTP/1.1")
    world.wait_port(8000, process=server)
    return served(world, 8000, path)


NODE = """const http = require('http'), crypto = require('crypto'), cluster = require('cluster');
const workers = Number(process.argv[2]);
if (workers > 1 && cluster.isPrimary) { for (let i = 0; i < workers; i++) cluster.fork(); }
else http.createServer((request, response) => {
    if (request.method != 'POST') return response.end('hello');
    const hash = crypto.createHash('sha256');
    request.on('data', part => hash.update(part)).on('end', () => response.end(hash.digest('hex')));
}).listen(8000, '0.0.0.0');
"""


def node(world, workers):
    script = world.folder / "web.js"
    script.write_text(NODE)
    return application_served(world, world.stack("node", script, workers))


@entry("Node", packages="nodejs wrk curl")
def node_one(world):
    return node(world, 1)


@entry("Node cluster, two workers", packages="nodejs wrk curl")
def node_cluster(world):
    return node(world, 2)


JAVA = """import com.sun.net.httpserver.*;
import java.net.*; import java.security.*; import java.util.*; import java.util.concurrent.*;
public class Web {
    public static void main(String[] words) throws Exception {
        HttpServer server = HttpServer.create(new InetSocketAddress("0.0.0.0", 8000), 128);
        server.createContext("/", exchange -> {
            byte[] body = exchange.getRequestBody().readAllBytes();
            byte[] answer = "hello".getBytes();
            if (exchange.getRequestMethod().equals("POST")) try {
                byte[] sum = MessageDigest.getInstance("SHA-256").digest(body);
                answer = HexFormat.of().formatHex(sum).getBytes();
            } catch (NoSuchAlgorithmException e) { throw new RuntimeException(e); }
            exchange.sendResponseHeaders(200, answer.length);
            exchange.getResponseBody().write(answer);
            exchange.close();
        });
        server.setExecutor(Executors.newFixedThreadPool(4));
        server.start();
    }
}
"""


@entry(
    "JVM, HttpServer with four threads", packages="openjdk-17-jdk-headless wrk curl", timeout=120
)
def java(world):
    source = world.folder / "Web.java"
    source.write_text(JAVA)
    world.beside("javac", "-d", world.folder, source).finish(60)
    server = world.stack(
        "java", "-Xmx256m", "-Dsun.net.httpserver.nodelay=true", "-cp", world.folder, "Web"
    )
    return application_served(world, server, seconds=40)


@entry("puma, four threads", packages="puma wrk curl")
def puma(world):
    rackup = world.folder / "config.ru"
    rackup.write_text(
        "require 'digest'\nrun lambda { |env| body = env['REQUEST_METHOD'] == 'POST' ? "
        "Digest::SHA256.hexdigest(env['rack.input'].read) : 'hello'\n[200, {}, [body]] }\n"
    )
    server = world.stack(
        "puma",
        "-t",
        "4:4",
        "-b",
        "tcp://0.0.0.0:8000",
        "-e",
        "production",
        rackup,
        cwd=world.folder,
    )
    return application_served(world, server)


@entry("starman (Perl), two workers", packages="starman wrk curl")
def starman(world):
    script = world.folder / "app.psgi"
    script.write_text(
        "use Digest::SHA qw(sha256_hex);\nsub { my $env = shift; my $body = '';\n"
        "while ($env->{'psgi.input'}->read(my $part, 65536)) { $body .= $part }\n"
        "return [200, [], [$env->{REQUEST_METHOD} eq 'POST' ? sha256_hex($body) : 'hello']] }\n"
    )
    return application_served(
        world, world.stack("starman", "--host", "0.0.0.0", "--workers", 2, "--port", 8000, script)
    )


@entry("Mojolicious (Perl)", packages="libmojolicious-perl wrk curl")
def mojolicious(world):
    script = world.folder / "app.pl"
    script.write_text(
        "use Mojolicious::Lite; use Digest::SHA qw(sha256_hex);\nget '/' => {text => 'hello'}; post"
        " '/' => sub { my $c = shift; $c->render(text => sha256_hex($c->req->body))"
        " };\napp->start;\n"
    )
    server = world.stack(
        "perl",
        script,
        "daemon",
        "-m",
        "production",
        "-l",
        "http://0.0.0.0:8000",
        env={"MOJO_MAX_MESSAGE_SIZE": 9_000_000},
    )
    return application_served(world, server)


ERLANG = """inets:start(), {ok, _} = inets:start(httpd, [{port, 8000}, {server_name, "page"},
{server_root, "FOLDER"}, {document_root, "FOLDER"}, {bind_address, {0,0,0,0}}, {ipfamily, inet},
{max_keep_alive_request, 1000000}, {modules, [mod_alias, mod_esi, mod_get, mod_head]},
{erl_script_alias, {"/esi", [page]}}])."""
ERLANG_PAGE = """-module(page).
-export([echo/3]).
echo(Session, _, Input) ->
    ok = mod_esi:deliver(Session, "Content-Type: application/octet-stream\\r\\n\\r\\n"),
    ok = mod_esi:deliver(Session, Input).
"""


@entry("Erlang, inets httpd", packages="erlang-base erlang-inets wrk curl")
def erlang(world):
    folder, path = site(world)
    code = ERLANG.replace("FOLDER", str(folder)).replace("\n", " ")
    (world.folder / "page.erl").write_text(ERLANG_PAGE)
    env = {"HOME": world.folder}
    world.beside("erlc", "-o", world.folder, world.folder / "page.erl", env=env).finish(40)
    words = ["-noshell", "-noinput", "-pa", world.folder, "-eval", code]
    server = world.stack("erl", *words, env=env)
    world.wait_port(8000, 20, process=server)

    def up(base):
        tools.post_echo(world, f"{base}/esi/page/echo", tools.blob(world, "up.bin"))

    return served(world, 8000, path, checked=f"{DOWN}, 3 MB echoed", up=up)


@entry("webfs", packages="webfs wrk curl")
def webfs(world):
    folder, path = site(world)
    server = world.stack(
        "webfsd", "-F", "-p", 8000, "-r", folder, "-u", "www-data", "-g", "www-data"
    )
    world.wait_port(8000, process=server)
    return served(world, 8000, path)

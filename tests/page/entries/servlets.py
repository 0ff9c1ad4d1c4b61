"""Servers of Java, and of Python with workers that are replaced."""

import shutil
import signal
import time

from harness.process import descendants, until
from page import Outcome, entry
from page import tools

BOTH = "3 MB down, 3 MB up"
PAGE = """<%@page contentType="text/plain" trimDirectiveWhitespaces="true"%><%
java.security.MessageDigest digest = java.security.MessageDigest.getInstance("SHA-256");
byte[] part = new byte[65536];
java.io.InputStream in = request.getInputStream();
for (int n; (n = in.read(part)) > 0; ) digest.update(part, 0, n);
for (byte one : digest.digest()) out.print(String.format("%02x", one));
%>"""
TOMCAT = """<Server port="-1"><Service name="Catalina">
<Executor name="pool" namePrefix="pool-" maxThreads="8" minSpareThreads="2"/>
<Connector port="8080" executor="pool" maxKeepAliveRequests="-1" keepAliveTimeout="20000"
  maxPostSize="-1" address="{address}"/>
<Engine name="Catalina" defaultHost="localhost">
<Host name="localhost" appBase="webapps" autoDeploy="false"/></Engine></Service></Server>
"""


def kept_and_short(world, url, path, up):
    """Files by new connections and by one that is kept, then many short requests. Their rate is
    that of a program which is still being compiled."""
    for _ in range(3):
        tools.fetch(world, f"{url}/big.bin", path)
        tools.upload(world, up, path)
    words = ["curl", "-sS", "--fail", "--max-time", 20, "-H", "Expect:", "--data-binary"]
    said = world.peer(*words, f"@{path}", up, up, up).finish(30)
    assert said.count(tools.digest(path.read_bytes())) == 3, said
    tools.wrk(world, f"{url}/small.txt", 8)
    return Outcome(f"{BOTH}, three times; up by a kept connection")


def answers(world, server, port):
    """Waits for the first answer: Tomcat binds its port long before."""
    world.wait_port(port, 60, process=server)
    words = ["curl", "-sS", "--fail", "--max-time", 60, "-o", "/dev/null"]
    world.peer(*words, f"http://{world.address}:{port}/small.txt").finish(70)


def ends_and_starts(world, server, start, port, seconds):
    """It ends at SIGTERM, and the next one has the port at once."""
    answers(world, server, port)
    server.stop(seconds)
    server = start()
    answers(world, server, port)
    return server


def application(folder):
    folder.mkdir(parents=True)
    (folder / "small.txt").write_text("x" * 64)
    (folder / "hash.jsp").write_text(PAGE)


@entry("Tomcat, eight threads", packages="tomcat10 default-jre-headless wrk curl", timeout=180)
def tomcat(world):
    base = world.folder / "tomcat"
    for name in ("logs", "temp", "work", "webapps"):
        (base / name).mkdir(parents=True)
    shutil.copytree("/etc/tomcat10", base / "conf", symlinks=False)
    (base / "conf/server.xml").write_text(TOMCAT.format(address=world.address))
    application(base / "webapps/ROOT")
    path = tools.blob(world, "tomcat/webapps/ROOT/big.bin")
    env = {"CATALINA_BASE": base, "CATALINA_HOME": "/usr/share/tomcat10", "JAVA_OPTS": "-Xmx256m"}

    def start():
        return world.stack("/usr/share/tomcat10/bin/catalina.sh", "run", env=env)

    server = start()
    url = f"http://{world.address}:8080"
    server = ends_and_starts(world, server, start, 8080, 20)
    return kept_and_short(world, url, path, f"{url}/hash.jsp")


@entry("Jetty", packages="jetty9 default-jre-headless wrk curl", timeout=180)
def jetty(world):
    base = world.folder / "jetty"
    (base / "start.d").mkdir(parents=True)
    (base / "start.d/page.ini").write_text(
        f"--module=http\n--module=deploy\n--module=jsp\njetty.http.host={world.address}\n"
        "jetty.http.port=8080\njetty.threadPool.maxThreads=16\n"
    )
    application(base / "webapps/ROOT")
    path = tools.blob(world, "jetty/webapps/ROOT/big.bin")
    words = ["java", "-Xmx256m", "-jar", "/usr/share/jetty9/start.jar"]
    words += ["jetty.home=/usr/share/jetty9", f"jetty.base={base}"]

    def start():
        return world.stack(*words, cwd=base)

    server = start()
    url = f"http://{world.address}:8080"
    server = ends_and_starts(world, server, start, 8080, 20)
    return kept_and_short(world, url, path, f"{url}/hash.jsp")


WSGI = """import hashlib, os
def app(environ, start):
    body = b"x" * 64
    if environ["REQUEST_METHOD"] == "POST":
        length = int(environ["CONTENT_LENGTH"])
        body = hashlib.sha256(environ["wsgi.input"].read(length)).hexdigest().encode()
    if environ["PATH_INFO"] == "/big.bin":
        body = open("big.bin", "rb").read()
    start("200 OK", [("Content-Length", str(len(body)))])
    return [body]
"""


@entry("gunicorn, gevent, reloads", packages="gunicorn python3-gevent wrk curl", timeout=120)
def gunicorn_gevent(world):
    (world.folder / "web.py").write_text(WSGI)
    path = tools.blob(world)
    words = ["gunicorn", "-k", "gevent", "-w", 2, "-b", "0.0.0.0:8000", "--graceful-timeout", 5]

    def start():
        return world.stack(*words, "web:app", cwd=world.folder)

    server = start()
    world.wait_port(8000, 20, process=server)
    url = f"http://{world.address}:8000"
    for _ in range(3):
        before = set(descendants(server.pid))
        load = world.peer("ab", "-q", "-n", 300, "-c", 4, f"{url}/")
        time.sleep(0.1)
        server.signal(signal.SIGHUP)
        tools.fetch(world, f"{url}/big.bin", path)
        text = load.finish(30)
        assert "Failed requests:        0" in text, text
        until(lambda: not before & set(descendants(server.pid)), 20, "the old workers end")
        tools.upload(world, f"{url}/up", path)
    server = ends_and_starts(world, server, start, 8000, 20)
    tools.fetch(world, f"{url}/big.bin", path)
    return Outcome(f"{BOTH}, and under reloads", tools.wrk(world, f"{url}/", 8), "requests/s")

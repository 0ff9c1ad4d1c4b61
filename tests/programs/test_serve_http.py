"""`slipstack serve http` against curl, wrk, ab and raw requests."""

import hashlib
import re
import shutil
import subprocess

from harness import Skip, test
from harness.http import Connection, get
from test_serve import ALONE, serve

PORT = 8081


def files(world):
    root = world.folder / "www"
    (root / "sub" / "deep").mkdir(parents=True)
    (root / "hello").write_text("hello from a file\n")
    (root / "page.html").write_text("<p>page</p>")
    (root / "a & b <c>.txt").write_text("odd name")
    (root / "big.bin").write_bytes(hashlib.shake_256(b"big").digest(20_000_000))
    (root / "sub" / "index.html").write_text("index of sub")
    (root / "sub" / "deep" / "x.css").write_text("p{}")
    (root / "out").symlink_to("/etc")
    (root / "in").symlink_to("sub/deep/x.css")
    return root


def http(world, *more):
    root = files(world)
    serve(world, "http", root, "--port", PORT, *more)
    return root


def curl(world, path, *more):
    words = world.peer_ns.prefix() + [
        "curl",
        "-sS",
        "--path-as-is",
        "-m",
        "20",
        "-i",
        *more,
        f"http://{world.address}:{PORT}{path}",
    ]
    done = subprocess.run(words, capture_output=True)
    assert done.returncode == 0, done.stderr
    head, _, body = done.stdout.partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    fields = {
        name.lower(): value.strip()
        for name, _, value in (line.partition(":") for line in lines[1:])
    }
    return int(lines[0].split()[1]), fields, body


def raw(world, port, request, seconds=5):
    """The status of each answer to raw bytes; 0: the connection ended without one."""
    with world.connect(port) as sock:
        sock.settimeout(seconds)
        sock.sendall(request)
        answer = b""
        try:
            while piece := sock.recv(65536):
                answer += piece
        except ConnectionResetError:
            pass
        except TimeoutError:
            return ["open"]
    return [int(status) for status in re.findall(rb"HTTP/1.[01] (\d{3}) ", answer)] or [0]


@test(modes=ALONE)
def files_ranges_and_conditions_are_as_curl_expects(world):
    root = http(world)
    status, fields, body = curl(world, "/hello")
    assert (status, body) == (200, b"hello from a file\n")
    assert fields["content-length"] == "18" and fields["accept-ranges"] == "bytes"
    etag, modified = fields["etag"], fields["last-modified"]
    assert curl(world, "/hello", "-H", f"If-None-Match: {etag}")[0] == 304
    assert curl(world, "/hello", "-H", f"If-Modified-Since: {modified}")[0] == 304
    assert curl(world, "/hello", "-r", "6-9")[::2] == (206, b"from")
    assert curl(world, "/hello", "-r", "100-")[0] == 416
    assert curl(world, "/hello", "-I")[2] == b""
    assert curl(world, "/page.html")[1]["content-type"] == "text/html; charset=utf-8"
    assert curl(world, "/hello", "-0", "-H", "Connection: close")[1]["connection"] == "close"
    # A change is seen once a second has passed at the latest.
    (root / "hello").write_text("changed")
    assert any(curl(world, "/hello")[2] == b"changed" for _ in range(200))


@test(modes=ALONE)
def long_files_come_whole_also_in_part_and_to_many(world):
    root = http(world)
    data = (root / "big.bin").read_bytes()
    assert curl(world, "/big.bin")[2] == data
    assert curl(world, "/big.bin", "-r", "1000000-19999998")[2] == data[1_000_000:19_999_999]
    urls = [f"http://{world.address}:{PORT}/big.bin"] * 6
    words = ["curl", "-sS", "--parallel", "-m", "60"]
    for number, url in enumerate(urls):
        words += ["-o", str(world.folder / f"out{number}"), url]
    assert subprocess.run(world.peer_ns.prefix() + words).returncode == 0
    for number in range(len(urls)):
        assert (world.folder / f"out{number}").read_bytes() == data
    # A short one beside them is not held up.
    slow = world.connect(PORT)
    slow.sendall(b"GET /big.bin HTTP/1.1\r\nHost: x\r\n\r\n")
    assert get(world, PORT, "/hello") == (200, b"hello from a file\n")
    slow.close()


@test(modes=ALONE)
def directories_are_listed_sorted_and_escaped(world):
    http(world)
    status, fields, body = curl(world, "/")
    assert status == 200 and fields["content-type"].startswith("text/html")
    text = body.decode()
    names = re.findall(r'<a href="([^"]*)">([^<]*)</a>', text)
    assert ("a%20%26%20b%20%3Cc%3E.txt", "a &amp; b &lt;c&gt;.txt") in names
    listed = [name for name, _ in names]
    assert listed == [
        "out/",
        "sub/",
        "a%20%26%20b%20%3Cc%3E.txt",
        "big.bin",
        "hello",
        "in",
        "page.html",
    ], listed
    assert "20000000" in text
    assert curl(world, "/a%20%26%20b%20%3Cc%3E.txt")[2] == b"odd name"
    status, fields, _ = curl(world, "/sub")
    assert (status, fields["location"]) == (301, "/sub/")
    assert curl(world, "/sub/")[2] == b"index of sub"
    assert curl(world, "/sub/deep/")[0] == 200


@test(modes=ALONE, timeout=90)
def a_browser_shows_a_listing(world):
    if not shutil.which("chromium"):
        raise Skip("chromium is not installed")
    http(world)
    picture, profile = world.folder / "listing.png", world.folder / "profile"
    page = f"http://{world.address}:{PORT}/"
    browser = ["chromium", "--headless", "--no-sandbox", "--disable-gpu"]
    browser.append(f"--user-data-dir={profile}")
    shown = world.peer(*browser, "--dump-dom", page)
    assert shown.wait(60) == 0, shown.tail()
    text = shown.output()
    assert "<h1>Index of /</h1>" in text and "a &amp; b &lt;c&gt;.txt</a>" in text, shown.tail()
    assert 'title="20000000 bytes">19 MiB</td>' in text, text
    drawn = world.peer(*browser, f"--screenshot={picture}", "--window-size=900,600", page)
    assert drawn.wait(60) == 0, drawn.tail()
    # An empty page of this size has some 3 KB.
    assert picture.read_bytes().startswith(b"\x89PNG") and picture.stat().st_size > 10_000


@test(modes=ALONE)
def nothing_outside_of_the_root_is_served(world):
    http(world)
    assert curl(world, "/in")[2] == b"p{}"
    for path in ("/out/passwd", "/out/", "/out"):
        assert curl(world, path)[0] in (403, 404), path
    for path in (
        "/../etc/passwd",
        "/%2e%2e/etc/passwd",
        "/sub/../../etc/passwd",
        "/..%2fetc/passwd",
        "/hello%00.html",
    ):
        assert curl(world, path)[0] == 400, path
    assert curl(world, "/sub/../hello")[0] == 200
    assert curl(world, "/none")[0] == 404


HOST = b"Host: x\r\n"


@test(modes=ALONE)
def slow_and_silent_clients_are_sent_away(world):
    http(world, "--head-timeout", 1, "--idle", 2)
    assert raw(world, PORT, b"GET /hel") == [408]
    assert raw(world, PORT, b"") == [0]
    assert raw(world, PORT, b"GET /hello HTTP/1.1\r\n" + HOST + b"\r\n") == [200]


@test(modes=ALONE)
def wrk_and_ab_find_no_failure_and_the_log_has_every_request(world):
    log = world.folder / "access.log"
    http(world, "--access-log", log)
    url = f"http://{world.address}:{PORT}/hello"
    ab = subprocess.run(
        world.peer_ns.prefix() + ["ab", "-q", "-n", "3000", "-c", "50", url],
        capture_output=True,
        text=True,
    )
    assert re.search(r"Complete requests: +3000\n", ab.stdout) and re.search(
        r"Failed requests: +0\n", ab.stdout
    ), (ab.stdout + ab.stderr)
    ab = subprocess.run(
        world.peer_ns.prefix() + ["ab", "-q", "-k", "-n", "3000", "-c", "50", url],
        capture_output=True,
        text=True,
    )
    assert re.search(r"Keep-Alive requests: +3000\n", ab.stdout), ab.stdout + ab.stderr
    wrk = subprocess.run(
        world.peer_ns.prefix() + ["wrk", "-t1", "-c20", "-d1", url], capture_output=True, text=True
    )
    assert "Socket errors" not in wrk.stdout and "Non-2xx" not in wrk.stdout, wrk.stdout
    served = 6000 + int(re.search(r"(\d+) requests in", wrk.stdout)[1])

    def lines():
        return log.read_text().count("\n")

    from harness.process import until

    until(lambda: lines() >= served, 10, "the log is written")
    line = log.read_text().splitlines()[0]
    assert re.fullmatch(
        (
            rf'{world.PEER} - - \[\d\d/\w{{3}}/\d{{4}}:\d\d:\d\d:\d\d \+0000\] "GET /hello'
            r' HTTP/1.0" 200 18 "-" "ApacheBench/[\d.]+"'
        ),
        line,
    ), line


@test(modes=ALONE)
def keep_alive_and_pipelining_keep_the_order(world):
    http(world, "--no-listing")
    assert curl(world, "/")[0] == 403
    with Connection(world.connect(PORT)) as connection:
        for _ in range(50):
            assert connection.get("/hello") == (200, b"hello from a file\n")
    many = b"".join(
        b"GET /%s HTTP/1.1\r\nHost: x\r\n\r\n" % path
        for path in (b"hello", b"none", b"page.html") * 200
    )
    many += b"GET /hello HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    assert raw(world, PORT, many) == [200, 404, 200] * 200 + [200]

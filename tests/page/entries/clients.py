"""Clients, which run on the stack under test; the server is on the kernel."""

import re
import sys
import time

from page import Outcome, entry
from page import tools

# Of one measurement.
REQUESTS = 4000


def kernel_server(world):
    return tools.digest_server(world, 9000), tools.blob(world)


@entry("curl", packages="curl nginx-light")
def curl(world):
    base, path = kernel_server(world)
    into = world.folder / "into"
    world.stack("curl", "-sS", "--fail", "-o", into, f"{base}/big.bin").finish(20)
    assert into.read_bytes() == path.read_bytes()
    text = world.stack("curl", "-sS", "--data-binary", f"@{path}", f"{base}/up").finish(20)
    assert text.strip() == tools.digest(path.read_bytes())
    url = nginx_at_peer(world)
    words = ["-o", "/dev/null", "-w", "%{http_code} %{time_total}\\n", f"{url}?[1-{REQUESTS}]"]
    said = world.stack("curl", "-sS", *words).finish(60).splitlines()
    assert [line.split()[0] for line in said] == ["200"] * REQUESTS, said[-1]
    seconds = sum(float(line.split()[1]) for line in said)
    return Outcome("3 MB down, 3 MB up", REQUESTS / seconds, "requests/s")


@entry("wget", packages="wget nginx-light")
def wget(world):
    base, path = kernel_server(world)
    into = world.folder / "into"
    world.stack("wget", "-q", "-O", into, f"{base}/big.bin").finish(20)
    assert into.read_bytes() == path.read_bytes()
    urls, url = world.folder / "urls", nginx_at_peer(world)
    urls.write_text("".join(f"{url}?{number}\n" for number in range(REQUESTS)))
    begun = time.monotonic()
    world.stack("wget", "-q", "-O", "/dev/null", "-i", urls).finish(60)
    return Outcome("3 MB down", REQUESTS / (time.monotonic() - begun), "requests/s")


@entry("lftp", packages="lftp")
def lftp(world):
    base, path = kernel_server(world)
    world.stack(
        "lftp",
        "-c",
        f"set net:max-retries 1; get {base}/big.bin -o {world.folder}/into",
        env={"HOME": world.folder},
    ).finish(30)
    assert (world.folder / "into").read_bytes() == path.read_bytes()
    return Outcome("3 MB down")


def nginx_at_peer(world):
    folder = world.folder / "ng"
    folder.mkdir()
    (folder / "conf").write_text(
        f"daemon off; pid {folder}/pid; error_log stderr; events {{ }} http {{ access_log off;"
        f" keepalive_requests 1000000; client_body_temp_path {folder}/a; proxy_temp_path"
        f" {folder}/b; fastcgi_temp_path {folder}/c; uwsgi_temp_path {folder}/d; scgi_temp_path"
        f' {folder}/e; server {{ listen 8080; location / {{ return 200 "hello"; }} }} }}\n'
    )
    world.peer(tools.sbin("nginx"), "-c", folder / "conf", "-p", folder)
    world.wait_port(8080, address=world.peer_address)
    return f"http://{world.peer_address}:8080/"


@entry("wrk, two threads", packages="wrk nginx-light")
def wrk(world):
    url = nginx_at_peer(world)
    text = world.stack("wrk", "-t", 2, "-c", 16, "-d", tools.SECONDS, url).finish(20)
    assert "Socket errors" not in text, text
    return Outcome(
        "answers counted", float(re.search(r"Requests/sec:\s+([\d.]+)", text)[1]), "requests/s"
    )


@entry("ab", packages="apache2-utils nginx-light")
def ab(world):
    url = nginx_at_peer(world)
    text = world.stack("ab", "-q", "-n", 10000, "-c", 16, url).finish(60)
    assert re.search(r"Failed requests:\s+0", text), text
    return Outcome(
        "answers counted",
        float(re.search(r"Requests per second:\s+([\d.]+)", text)[1]),
        "requests/s",
    )


@entry("h2load in HTTP/1.1", packages="nghttp2-client nginx-light")
def h2load(world):
    url = nginx_at_peer(world)
    text = world.stack("h2load", "--h1", "-n", 20000, "-c", 16, "-t", 2, url).finish(60)
    assert "20000 succeeded" in text, text
    return Outcome(
        "answers counted",
        float(text.split("finished in")[1].split(",")[1].split()[0]),
        "requests/s",
    )


@entry("redis-benchmark", packages="redis-server redis-tools")
def redis_benchmark(world):
    world.peer(
        "redis-server", "--port", 6379, "--save", "", "--protected-mode", "no", cwd=world.folder
    )
    world.wait_port(6379, address=world.peer_address)
    text = world.stack(
        "redis-benchmark",
        "-h",
        world.peer_address,
        "-q",
        "-t",
        "set",
        "-n",
        40000,
        "-c",
        16,
        "--csv",
    ).finish(60)
    return Outcome(
        "answers counted", float(text.splitlines()[-1].split(",")[1].strip('"')), "sets/s"
    )


def iperf3(world, *options):
    server = world.stack("iperf3", "-s", "-p", 5201)
    world.wait_port(5201, process=server)
    text = world.peer(
        "iperf3", "-c", world.address, "-p", 5201, "-t", tools.SECONDS, "-J", *options
    ).finish(30)
    import json

    end = json.loads(text)["end"]
    return Outcome("bytes counted", end["sum_received"]["bits_per_second"] / 1e6, "Mbit/s")


@entry("iperf3 -P 8, server", packages="iperf3")
def iperf3_in(world):
    return iperf3(world, "-P", 8)


@entry("iperf3 -P 8 -R, server", packages="iperf3")
def iperf3_out(world):
    return iperf3(world, "-P", 8, "-R")


@entry("dnsperf, client", packages="dnsperf dnsmasq-base")
def dnsperf(world):
    hosts = world.folder / "hosts"
    hosts.write_text("192.0.2.7 known.test\n")
    words = [
        "--keep-in-foreground",
        "--conf-file=/dev/null",
        "--port=53",
        "--no-resolv",
        "--no-hosts",
        "--user=root",
    ]
    world.peer(
        tools.sbin("dnsmasq"), *words, f"--addn-hosts={hosts}", f"--pid-file={world.folder}/pid"
    )
    world.wait_port(53, address=world.peer_address)
    queries = world.folder / "queries"
    queries.write_text("known.test A\n")
    text = world.stack(
        "dnsperf", "-s", world.peer_address, "-d", queries, "-l", tools.SECONDS, "-c", 4, "-q", 32
    ).finish(30)
    assert re.search(r"Queries lost:\s+0", text), text
    return Outcome(
        "answers counted", float(re.search(r"Queries per second:\s+([\d.]+)", text)[1]), "queries/s"
    )


@entry("Python requests in threads", packages="python3")
def python_client(world):
    base, path = kernel_server(world)
    script = world.folder / "client.py"
    script.write_text(
        "import sys, hashlib, urllib.request, concurrent.futures as f\ndef get(_): return"
        " hashlib.sha256(urllib.request.urlopen(sys.argv[1], timeout=20).read()).hexdigest()\nwith"
        " f.ThreadPoolExecutor(8) as pool: print(set(pool.map(get, range(16))))\n"
    )
    text = world.stack(sys.executable, script, f"{base}/big.bin").finish(40)
    assert text.strip() == str({tools.digest(path.read_bytes())}), text
    return Outcome("3 MB down, 16 times, 8 threads")

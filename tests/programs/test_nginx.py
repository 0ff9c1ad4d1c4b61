"""Debian's nginx, unmodified: workers, files, log, reload, binary upgrade."""

import os
import pwd
import signal
import threading
import time

from harness import test
from harness.http import Connection, get
from harness.nginx import Nginx, pid_file
from harness.process import until


@test
def serves_with_one_worker(world):
    nginx = Nginx(world)
    assert get(world, 8080) == (200, b"hello from nginx\n")
    assert get(world, 8080, "/small.txt") == (200, b"x" * 64)
    assert get(world, 8080, "/none")[0] == 404
    assert not nginx.alerts(), nginx.alerts()


@test
def sends_a_large_file_with_sendfile(world):
    nginx = Nginx(world)
    for _ in range(3):
        assert get(world, 8080, "/big.bin") == (200, nginx.big)


@test
def serves_a_thousand_requests_on_one_connection(world):
    Nginx(world)
    with Connection(world.connect(8080)) as connection:
        for _ in range(1000):
            assert connection.get() == (200, b"hello from nginx\n")


@test
def answers_pipelined_requests_in_order(world):
    Nginx(world)
    with Connection(world.connect(8080)) as connection:
        request = "GET {} HTTP/1.1\r\nHost: test\r\n\r\n"
        connection.sock.sendall(
            "".join(request.format(path) for path in ["/hello", "/small.txt"] * 20).encode()
        )
        bodies = [connection.response()[1] for _ in range(40)]
        assert bodies == [b"hello from nginx\n", b"x" * 64] * 20


@test
def logs_every_request_with_the_peers_address(world):
    nginx = Nginx(world)
    for _ in range(20):
        get(world, 8080)
    until(
        lambda: sum("GET /hello" in line for line in nginx.access_lines()) == 20,
        5,
        "20 lines in the log",
    )
    assert all(
        line.startswith(world.peer_address + " ") for line in nginx.access_lines() if "GET" in line
    )


@test
def serves_with_two_workers_as_www_data(world):
    nginx = Nginx(world, workers=2)
    pids = set()

    def serve(requests):
        for _ in range(requests):
            status, body = get(world, 8080, "/worker")
            assert status == 200
            pids.add(int(body))
        return len(pids) == 2

    both_serve = serve(200)
    assert pids <= set(nginx.workers()) and len(nginx.workers()) == 2
    user = pwd.getpwnam("www-data").pw_uid
    assert all(os.stat(f"/proc/{pid}").st_uid == user for pid in nginx.workers())
    # The first process serves alone until the other one listens; on the kernel it may stay so.
    if world.mode != "kernel" and not both_serve:
        until(lambda: serve(20), 10, "both workers serve")


@test
def a_killed_worker_is_replaced_and_the_new_one_serves(world):
    nginx = Nginx(world)
    assert get(world, 8080)[0] == 200
    (first,) = nginx.workers()
    os.kill(first, signal.SIGKILL)
    until(lambda: nginx.workers() and nginx.workers() != [first], 5, "a new worker")
    for _ in range(20):
        assert get(world, 8080)[0] == 200


@test
def a_stopped_worker_of_two_holds_up_no_new_connection(world):
    nginx = Nginx(world, workers=2)
    until(
        lambda: {int(get(world, 8080, "/worker")[1]) for _ in range(20)}
        and len(nginx.workers()) == 2,
        10,
        "both serve",
    )
    first = nginx.workers()[0]
    os.kill(first, signal.SIGSTOP)
    try:
        for _ in range(20):
            with world.connect(8080, 1) as sock:
                sock.sendall(b"GET /worker HTTP/1.0\r\n\r\n")
                assert sock.makefile().read().endswith(f"\n{nginx.workers()[1]}\n")
    finally:
        os.kill(first, signal.SIGCONT)
    if world.mode == "inprocess":
        served = set()
        until(
            lambda: served.add(int(get(world, 8080, "/worker")[1])) or first in served,
            10,
            "the first worker serves again",
        )


@test
def a_killed_worker_of_two_leaves_the_other_serving(world):
    nginx = Nginx(world, workers=2)
    first = nginx.workers()[0]
    os.kill(first, signal.SIGKILL)
    until(lambda: len(nginx.workers()) == 2 and first not in nginx.workers(), 5, "a new worker")
    served = {int(get(world, 8080, "/worker")[1]) for _ in range(100)}
    assert served <= set(nginx.workers())


@test
def a_reload_under_load_loses_no_request(world):
    nginx = Nginx(world, workers=2)
    with Requests(world) as requests:
        for _ in range(6):
            time.sleep(0.2)
            nginx.reload()
        time.sleep(0.3)
    assert requests.done > 100, requests.done
    assert not requests.failures, (requests.done, requests.failures[:3])


@test
def killed_workers_make_no_connection_refused(world):
    nginx = Nginx(world)
    with Requests(world) as requests:
        for _ in range(5):
            (victim,) = nginx.workers()
            os.kill(victim, signal.SIGKILL)
            until(lambda: nginx.workers() and victim not in nginx.workers(), 5, "a new worker")
            time.sleep(0.3)
    assert requests.done > 20, requests.done
    # Connections that the dead worker had accepted are reset; new ones wait for the next worker.
    assert not any("Refused" in failure for failure in requests.failures), requests.failures


@test
def an_open_connection_outlives_a_reload(world):
    nginx = Nginx(world)
    (first,) = nginx.workers()
    slow = world.connect(8080)
    slow.sendall(b"GET /hello HTTP/1.1\r\nHost: test\r\n")
    time.sleep(0.2)
    nginx.process.signal(signal.SIGHUP)
    until(lambda: any(pid != first for pid in nginx.workers()), 5, "a new worker")
    slow.sendall(b"Connection: close\r\n\r\n")
    with Connection(slow) as connection:
        assert connection.response() == (200, b"hello from nginx\n")


@test
def a_binary_upgrade_loses_no_request(world):
    # Only a daemon accepts SIGUSR2: nginx wants its parent to have ended.
    nginx = Nginx(world, daemon=True)
    assert nginx.process.wait(5) == 0
    old = nginx.master()
    with Requests(world) as requests:
        time.sleep(0.2)
        os.kill(old, signal.SIGUSR2)
        until(lambda: pid_file(nginx.folder, "nginx.pid") not in (0, old), 10, "a new master")
        new = pid_file(nginx.folder, "nginx.pid")
        time.sleep(0.3)
        os.kill(old, signal.SIGQUIT)
        until(lambda: not os.path.exists(f"/proc/{old}"), 10, "the old master has ended")
        time.sleep(0.3)
    assert requests.done > 10, requests.done
    assert not requests.failures, (requests.done, requests.failures[:3])
    assert get(world, 8080)[0] == 200
    assert new != old


@test
def sigquit_finishes_the_answer_under_way(world):
    nginx = Nginx(world)
    sock = world.connect(8080)
    sock.sendall(b"GET /big.bin HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n")
    time.sleep(0.2)
    nginx.process.signal(signal.SIGQUIT)
    with Connection(sock) as connection:
        assert connection.response() == (200, nginx.big)
    assert nginx.process.wait(10) == 0


@test
def ends_by_sigterm_in_valgrind_under_load(world):
    """Valgrind restores the signal mask that it recorded, whatever a handler has put into the
    frame."""
    valgrind = ("valgrind", "--tool=none", "--quiet")
    nginx = Nginx(world, inside=valgrind, user="master_process off;")
    load = world.peer("wrk", "-t", 1, "-c", 8, "-d", 4, f"http://{world.address}:8080/")
    time.sleep(1)
    assert nginx.process.stop() == 0, nginx.process.tail()
    load.wait()


@test
def a_wildcard_listener_also_serves_loopback(world):
    Nginx(world)
    for _ in range(10):
        with Connection(world.connect_beside(8080)) as connection:
            assert connection.get(close=True) == (200, b"hello from nginx\n")
        assert get(world, 8080)[0] == 200


@test
def reuseport_listeners_serve_from_both_workers(world):
    nginx = Nginx(world, workers=2, listen="8080 reuseport")
    served = {int(get(world, 8080, "/worker")[1]) for _ in range(100)}
    assert served == set(nginx.workers())


@test
def accept_mutex_and_multi_accept_work(world):
    # One worker holds the mutex and sleeps; what lands on the other one must not wait for that.
    Nginx(world, workers=2, events="accept_mutex on; multi_accept on;")
    for _ in range(100):
        assert get(world, 8080)[0] == 200
    with Requests(world) as requests:
        time.sleep(1)
    assert requests.done > 50 and not requests.failures, (requests.done, requests.failures[:3])


@test
def proxies_to_the_kernel_and_to_itself(world):
    more = f"""location /peer/ {{ proxy_pass http://{world.peer_address}:9000/; }}
        location /self/ {{ proxy_pass http://127.0.0.1:8080/; }}
        location /stack/ {{ proxy_pass http://{world.address}:8080/; }}"""
    world.peer(
        "/usr/bin/python3",
        "-m",
        "http.server",
        "9000",
        "--bind",
        world.peer_address,
        cwd=world.folder,
    )
    (world.folder / "there.txt").write_text("from the peer")
    Nginx(world, more=more)
    until(
        lambda: get(world, 8080, "/peer/there.txt") == (200, b"from the peer"),
        10,
        "the peer's answer",
    )
    assert get(world, 8080, "/self/small.txt") == (200, b"x" * 64)
    assert get(world, 8080, "/stack/small.txt") == (200, b"x" * 64)


class Requests:
    """Asks one request after the other, each on a new connection, in several threads until the
    block ends."""

    def __init__(self, world, threads=4):
        self.world = world
        self.done = 0
        self.failures = []
        self.is_over = threading.Event()
        self.threads = [threading.Thread(target=self._loop, daemon=True) for _ in range(threads)]

    def _loop(self):
        while not self.is_over.is_set():
            try:
                assert get(self.world, 8080)[0] == 200
                self.done += 1
            except (OSError, AssertionError) as error:
                self.failures.append(repr(error))
                if len(self.failures) > 20:
                    return

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.is_over.set()
        for thread in self.threads:
            thread.join(20)

"""One program over several instances."""

import signal
import subprocess
import time
from collections import Counter

from harness import test
from harness.http import get as get_page
from harness.native import compiled
from harness.nginx import Nginx
from harness.process import until
from harness.world import PROGRAMS
from test_engines import check_one_thread_per_connection, started

ADAPTER = {"FF_NB_FSTACK_INSTANCE": "2", "FF_PROC_ID": "1"}


def proxying(world, listen):
    """nginx with two workers over two instances, the adapter's variable saying so."""
    for name in ("0", "1"):
        world.start_instance(name)
    (world.folder / "upstream.txt").write_text("from upstream")
    world.peer(
        "/usr/bin/python3",
        "-m",
        "http.server",
        8000,
        "--bind",
        world.peer_address,
        cwd=world.folder,
    )
    world.wait_port(8000, address=world.peer_address)
    # In the environment of the command alone.
    world.options = lambda extra=(): ["--run-dir", str(world.run_dir), *extra]
    world.process = with_variables(world.process)
    more = f"location /up/ {{ proxy_pass http://{world.peer_address}:8000/; }}"
    return Nginx(world, workers=2, listen=listen, more=more)


def with_variables(start):
    return lambda words, **keywords: start(words, env=ADAPTER, **keywords)


def get(world, path, count=1):
    """Requests on separate connections; the answers, counted."""
    url = f"http://{world.address}:8080{path}"
    command = [*world.peer_ns.prefix(), "curl", "-sS", "-m", "5", "--no-keepalive", url]
    answers = [
        subprocess.run(command, capture_output=True, text=True, check=True).stdout
        for _ in range(count)
    ]
    return Counter(answers)


def programs(world):
    """Process number of each program -> its instance."""
    rows = world.admin("status").output().splitlines()
    found = [row.split() for row in rows if " nginx " in row]
    return {int(row[0]): row[row.index("instance") + 1] for row in found}


def each_worker_has_its_instance(world, server):
    def has():
        found = programs(world)
        return sorted(found.get(worker, "-") for worker in server.workers()) == ["0", "1"]

    until(has, 10, "the workers use both instances")


def works(world, listen):
    server = proxying(world, listen)
    each_worker_has_its_instance(world, server)
    served = get(world, "/worker", 40)
    assert len(served) == 2 and sum(served.values()) == 40, served
    assert get(world, "/up/upstream.txt", 20) == {
        "from upstream": 20
    }, "upstream connections come home"
    # A worker's replacement uses the worker's instance.
    before = programs(world)
    killed = server.workers()[0]
    subprocess.run(["kill", "-KILL", str(killed)], check=True)
    until(
        lambda: killed not in server.workers() and len(server.workers()) == 2, 10, "another worker"
    )
    each_worker_has_its_instance(world, server)
    server.process.signal(signal.SIGHUP)
    until(
        lambda: len(server.workers()) == 2 and not set(server.workers()) & set(before),
        10,
        "new workers",
    )
    each_worker_has_its_instance(world, server)
    assert sum(get(world, "/worker", 20).values()) == 20


@test(modes=("instance",))
def workers_with_sockets_of_their_own_use_an_instance_each(world):
    works(world, "8080 reuseport")


@test(modes=("instance",))
def workers_with_one_listener_use_an_instance_each(world):
    works(world, "8080")


@test(modes=("instance",))
def instances_that_start_after_their_program_are_waited_for(world):
    """No keeper runs when the program is started, and none knows the second instance."""
    words = [world.slipstack, "run", "--run-dir", world.run_dir, "--", "/bin/true"]
    started = world.process([*world.stack_ns.prefix(), *map(str, words)], env=ADAPTER)
    time.sleep(0.1)
    world.start_instance("0")
    world.start_instance("1")
    assert started.wait() == 0, started.errors()


def threads(world, how):
    """A program of four threads over two instances."""
    for name in ("0", "1"):
        world.start_instance(name)
    world.options = lambda extra=(): ["--run-dir", str(world.run_dir), *extra]
    world.process = with_variables(world.process)
    return started(world, how, 4)


def channels(world, server):
    """How many engines of each instance its threads have."""
    rows = world.admin("status").output().splitlines()
    rows = [row.split() for row in rows if row.startswith(str(server.pid)) and " instance " in row]
    return Counter(row[row.index("instance") + 1] for row in rows)


@test(modes=("instance",))
def threads_with_listeners_of_their_own_use_all_instances(world):
    server = threads(world, "own")
    even = {"0": 2, "1": 2}
    until(lambda: channels(world, server) == even, 10, "each instance has two threads")
    served = check_one_thread_per_connection(world, 40)
    assert len(served) == 4 and sum(served.values()) == 40, served


@test(modes=("instance",))
def connections_that_one_thread_accepts_are_served_wherever_they_are(world):
    server = threads(world, "hands")
    for _ in range(3):
        assert sum(check_one_thread_per_connection(world, 12, rounds=10).values()) == 12
    assert set(channels(world, server)) == {"0", "1"} and server.is_running()


@test(modes=("instance",))
def threads_and_programs_have_a_port_of_their_own_in_each_instance(world):
    for name in ("0", "1"):
        world.start_instance(name)

    def program(source, compiler, threads):
        flags = ["-DPORT_OF_INSTANCE", f"-DTHREADS={threads}"]
        return compiled(world, PROGRAMS / "fstack" / source, compiler, flags, "slipstack")

    def started(made, **variables):
        return world.beside(made, env={"SLIPSTACK_RUN_DIR": world.run_dir, **variables})

    def serves(*servers):
        world.wait_port(80, process=servers[0])
        for _ in range(20):
            assert get_page(world, 80, "/") == (200, b"served"), servers[0].tail()
        assert all(server.is_running() for server in servers), servers[-1].tail()

    def is_refused(server):
        assert server.wait(10) == 1 and "bind failed" in server.output(), server.tail()

    threads = program("kqueue_threads.c", "gcc", 2)
    server = started(threads, FF_NB_FSTACK_INSTANCE=2)
    until(lambda: channels(world, server) == {"0": 1, "1": 1}, 10, "an instance each")
    serves(server)
    server.stop()
    # As elsewhere one program has a port once, if it does not ask for more.
    is_refused(started(threads, SLIPSTACK_INSTANCE="0,1"))
    for source, compiler in (("epoll_threads.c", "clang"), ("kqueue_threads.c", "clang")):
        single = program(source, compiler, 1)
        servers = [started(single, FF_PROC_ID=number) for number in (0, 1)]
        for number, server in enumerate(servers):
            until(lambda: channels(world, server) == {str(number): 1}, 10, "its own instance")
        serves(*servers)
        is_refused(started(single, FF_PROC_ID=1))
        for server in servers:
            server.stop()

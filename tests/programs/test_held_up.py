"""A worker that is stopped, frozen or in a debugger delays only its own connections."""

import contextlib
import os
import select
import selectors
import shutil
import signal
import socket
import subprocess
import threading
import time
from pathlib import Path

from harness import Skip, test
from harness.nginx import Nginx
from harness.process import until

REQUEST = b"GET %s HTTP/1.1\r\nHost: test\r\n\r\n"
CGROUPS = Path("/sys/fs/cgroup")
# Opened while a worker is held that has a listener of its own: about half of them are its.
OPENED = 24
UDP_PORT, FLOWS = 7390, 24
LENDER_PORT, ECHO_PORT, LENDER_REQUESTS, LENDER_FLOWS = 7397, 7398, 20, 8
# Datagrams that wait for a held worker: on the kernel one that wakes it, if it is frozen.
UNHEARD_MAX = {"kernel": 1, "inprocess": 0, "instance": 0}
# In-process those that a busy worker gives to one that is just being stopped.
GIVEN_MAX = {"kernel": 1, "inprocess": 3, "instance": 0}


def ask(sock, path=b"/worker"):
    sock.sendall(REQUEST % path)


def answer(sock):
    """Returns the body of the next answer on a persistent connection."""
    received = b""
    while b"\r\n\r\n" not in received:
        received += more(sock)
    head, _, body = received.partition(b"\r\n\r\n")
    length = int(head.partition(b"Content-Length: ")[2].split(b"\r")[0])
    while len(body) < length:
        body += more(sock)
    return body


def more(sock):
    data = sock.recv(1 << 16)
    assert data, "the end instead of an answer"
    return data


def connections_to_both(world, nginx):
    """Returns a persistent connection to each worker, by its process id."""
    found = {}
    until(lambda: len(nginx.workers()) == 2, 5, "both workers")

    def add_one():
        sock = world.connect(8080, 5)
        ask(sock)
        found.setdefault(int(answer(sock)), sock)
        return len(found) == 2

    until(add_one, 10, "connections to both workers")
    return found


def delays_no_other_worker(world, hold):
    nginx = Nginx(world, workers=2)
    found = connections_to_both(world, nginx)
    held, other = sorted(found)
    with hold(held):
        found[held].settimeout(0.3)
        ask(found[held], b"/big.bin")
        for _ in range(6):
            ask(found[other])
            assert int(answer(found[other])) == other
            with world.connect(8080, 2) as sock:
                ask(sock)
                assert int(answer(sock)) == other
        with contextlib.suppress(TimeoutError, socket.timeout):
            raise AssertionError(f"an answer of the one that is held: {more(found[held])[:80]}")
    found[held].settimeout(10)
    assert answer(found[held]) == nginx.big
    for sock in found.values():
        sock.close()


def opened(world):
    """Returns connections that are being made, for none of which anything is waited."""
    with world.at_peer():
        socks = [socket.socket() for _ in range(OPENED)]
    for sock in socks:
        sock.setblocking(False)
        sock.connect_ex((world.address, 8080))
    return socks


def answered(socks, seconds):
    """Has each connection ask once it is there. Returns the answers that come in time."""
    asked, found = set(), {}
    end = time.monotonic() + seconds
    with selectors.DefaultSelector() as waits:
        for sock in socks:
            waits.register(sock, selectors.EVENT_WRITE)
        while len(found) < len(socks) and time.monotonic() < end:
            for key, _ in waits.select(0.1):
                sock = key.fileobj
                if sock not in asked:
                    ask(sock)
                    asked.add(sock)
                    waits.modify(sock, selectors.EVENT_READ)
                    continue
                waits.unregister(sock)
                sock.settimeout(5)
                found[sock] = int(answer(sock))
    return found, asked


def holds_up_its_share_alone(world, hold):
    """Each worker has a listener of its own: new connections of the one that is held wait for it,
    and those of the other do not."""
    nginx = Nginx(world, workers=2, listen="8080 reuseport")
    found = connections_to_both(world, nginx)
    held, other = sorted(found)
    with hold(held):
        found[held].settimeout(0.3)
        ask(found[held], b"/big.bin")
        socks = opened(world)
        served, asked = answered(socks, 3)
        assert set(served.values()) == {other}, served
        assert len(served) > OPENED // 6, f"{len(served)} of {OPENED} are answered"
        for _ in range(6):
            ask(found[other])
            assert int(answer(found[other])) == other
    found[held].settimeout(10)
    assert answer(found[held]) == nginx.big
    for sock in set(socks) - set(served):
        # A SYN that was not answered is repeated after 1, 3 and 7 s.
        sock.settimeout(10)
        if sock not in asked:
            until(lambda: is_there(sock), 10, "a connection that waited is made")
            ask(sock)
        assert int(answer(sock)) in (held, other)
    for sock in [*socks, *found.values()]:
        sock.close()


def is_there(sock):
    error = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    assert error == 0, os.strerror(error)
    with contextlib.suppress(OSError):
        return sock.getpeername()


def state(pid):
    return state_in(Path(f"/proc/{pid}/stat"))


def state_in(stat):
    return stat.read_text().rpartition(") ")[2][0]


def states(pid):
    """Those of its threads."""
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            found.append(state_in(task / "stat"))
    return found


@contextlib.contextmanager
def stopped(pid):
    os.kill(pid, signal.SIGSTOP)
    try:
        until(lambda: state(pid) == "T", 5, "the stop")
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


@contextlib.contextmanager
def frozen(pid):
    """Freezes the process in a new cgroup, of either version."""
    if (CGROUPS / "freezer").is_dir():
        group, switch, words = CGROUPS / "freezer", "freezer.state", ("FROZEN", "THAWED")
    elif (CGROUPS / "cgroup.procs").exists():
        group, switch, words = CGROUPS, "cgroup.freeze", ("1", "0")
    else:
        raise Skip("no cgroup freezer is mounted")
    home = group
    group = group / f"slipstack-test-{pid}"
    try:
        group.mkdir()
    except OSError as error:
        raise Skip(f"a cgroup cannot be made: {error}") from error
    try:
        (group / "cgroup.procs").write_text(str(pid))
        (group / switch).write_text(words[0])
        yield
    finally:
        (group / switch).write_text(words[1])
        (home / "cgroup.procs").write_text(str(pid))
        until(lambda: not (group / "cgroup.procs").read_text(), 5, "the cgroup is empty")
        group.rmdir()


@contextlib.contextmanager
def debugged(pid):
    gdb = shutil.which("gdb")
    if gdb is None:
        raise Skip("gdb is not installed")
    words = [gdb, "-nx", "-q", "-p", str(pid)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(words, **pipes) as debugger:
        # It stops one thread after the other.
        until(lambda: set(states(pid)) == {"t"}, 20, "the debugger has stopped it")
        try:
            yield
        finally:
            debugger.stdin.write(b"detach\nquit\n")
            debugger.stdin.close()
            debugger.wait(20)


class Asked:
    """Sockets that ask the workers, and the answers: of each question those who gave one."""

    def __init__(self, world, how):
        server = world.stack(*world.program("udp_workers.py"), how, UDP_PORT)
        self.workers = {int(pid) for pid in server.words_after("workers")}
        self.to = (world.address, UDP_PORT)
        with world.at_peer():
            self.socks = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(FLOWS)]
        self.given = {}

    def ask(self, what, count=FLOWS):
        for number, sock in enumerate(self.socks[:count]):
            self.given.setdefault(b"%s %d" % (what, number), [])
            sock.sendto(b"%s %d" % (what, number), self.to)

    def hear(self, seconds):
        """Hears answers until there is one to each question, or the time is over."""
        end = time.monotonic() + seconds
        while not all(self.given.values()) and time.monotonic() < end:
            self.hear_some(0.1)

    def hear_some(self, seconds):
        for sock in select.select(self.socks, [], [], seconds)[0]:
            pid, _, question = sock.recv(2000).partition(b" ")
            self.given[question].append(int(pid))

    def ask_all(self, what):
        """Asks by each socket, has each answered, and returns who answered each."""
        self.ask(what)
        until(lambda: self.hear_all(what), 5, "the answers")
        return [self.given[b"%s %d" % (what, number)] for number in range(FLOWS)]

    def hear_all(self, what):
        self.hear_some(0.1)
        return all(self.given[b"%s %d" % (what, number)] for number in range(FLOWS))

    def until_all_answer(self):
        def do_all():
            answers = self.ask_all(b"try %d" % len(self.given))
            return {pid for pids in answers for pid in pids} == self.workers

        until(do_all, 10, "answers of all workers")

    def check(self):
        self.hear(5)
        self.hear_some(0.3)
        wrong = {question: pids for question, pids in self.given.items() if len(pids) != 1}
        assert not wrong, f"not answered once: {wrong}"


def delays_no_datagrams(world, hold):
    """The workers have one socket, so that the other one answers what comes for either."""
    asked = Asked(world, "shared")
    asked.until_all_answer()
    held, other = sorted(asked.workers)
    with hold(held):
        before = set(asked.given)
        for turn in range(4):
            asked.ask(b"held %d" % turn)
            asked.hear(0.5)
        answers = [pids for question, pids in asked.given.items() if question not in before]
        assert all(pids in ([], [other]) for pids in answers), answers
        assert answers.count([]) <= UNHEARD_MAX[world.mode], answers
    asked.check()
    asked.until_all_answer()


def delays_few_datagrams(world, hold):
    """As [delays_no_datagrams], with workers that take long for each."""
    asked = Asked(world, "slow")
    asked.until_all_answer()
    held = min(asked.workers)
    before = set(asked.given)
    with hold(held):
        for turn in range(40):
            # Fewer than the two that run can answer.
            asked.ask(b"held %d" % turn, 3)
            time.sleep(0.025)
        asked.hear(2)
        answers = [pids for question, pids in asked.given.items() if question not in before]
        assert answers.count([]) <= GIVEN_MAX[world.mode], answers.count([])
    asked.check()


def holds_up_its_own_datagrams_alone(world, hold):
    """Each worker has a socket of its own, with a queue of its own."""
    asked = Asked(world, "own")
    asked.until_all_answer()
    before = asked.ask_all(b"before")
    held, other = sorted(asked.workers)
    with hold(held):
        asked.ask(b"held")
        asked.hear(1)
        answers = [asked.given[b"held %d" % number] for number in range(FLOWS)]
        assert answers == [[pid for pid in pids if pid == other] for pids in before], answers
    asked.check()
    after = [asked.given[b"held %d" % number] for number in range(FLOWS)]
    assert after == before, (before, after)


def echo(world):
    """Echoes the one datagram by which the parent uses its socket."""
    with world.at_peer():
        sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.bind((world.peer_address, ECHO_PORT))
    sock.settimeout(20)

    def serve():
        with sock:
            data, sender = sock.recvfrom(100)
            sock.sendto(data, sender)

    threading.Thread(target=serve, daemon=True).start()


def send(sock, world, texts):
    for text in texts:
        sock.sendto(text, (world.address, LENDER_PORT))


def heard(sock, count, seconds=5):
    """Returns who has answered what: `count` answers, or those that come in the time."""
    end, answers = time.monotonic() + seconds, []
    while len(answers) < count and time.monotonic() < end:
        sock.settimeout(max(end - time.monotonic(), 0.01))
        try:
            pid, _, text = sock.recv(2000).partition(b" ")
        except TimeoutError:
            break
        answers.append((int(pid), text))
    return answers


def serves_while_its_parent_is_held(world, how, seconds_before=0, hold=stopped):
    echo(world)
    words = (how, LENDER_PORT, world.peer_address, ECHO_PORT)
    server = world.stack(*world.program("stopped_lender.py"), *words)
    parent, child = map(int, server.words_after("workers"))
    time.sleep(seconds_before)
    with world.at_peer():
        sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    texts = [b"%d" % number for number in range(LENDER_REQUESTS)]
    with hold(parent):
        for text in texts:
            send(sock, world, [text])
            assert heard(sock, 1) == [(child, text)], text
        send(sock, world, texts)
        answers = heard(sock, LENDER_REQUESTS)
        assert sorted(answers) == sorted((child, text) for text in texts), answers
    # The owner has the socket as before.
    send(sock, world, texts)
    answers = heard(sock, LENDER_REQUESTS)
    assert sorted(text for _, text in answers) == sorted(texts), answers
    if how == "parent":
        return
    with stopped(child):
        os.kill(parent, signal.SIGUSR1)
        send(sock, world, [b"last"])
        assert heard(sock, 1) == [(parent, b"last")]
    send(sock, world, texts)
    answers = heard(sock, LENDER_REQUESTS)
    assert sorted(answers) == sorted((child, text) for text in texts), answers


@test
def a_stopped_worker_holds_up_its_own_connections_alone(world):
    delays_no_other_worker(world, stopped)


@test
def a_frozen_worker_holds_up_its_own_connections_alone(world):
    delays_no_other_worker(world, frozen)


@test
def a_worker_in_a_debugger_holds_up_its_own_connections_alone(world):
    delays_no_other_worker(world, debugged)


@test
def a_stopped_worker_holds_up_no_datagrams(world):
    delays_no_datagrams(world, stopped)


@test
def a_frozen_worker_holds_up_no_datagrams(world):
    delays_no_datagrams(world, frozen)


@test
def a_worker_in_a_debugger_holds_up_no_datagrams(world):
    delays_no_datagrams(world, debugged)


@test
def a_stopped_worker_beside_slow_ones_holds_up_few_datagrams(world):
    delays_few_datagrams(world, stopped)


@test
def a_parent_and_its_children_share_the_datagrams_of_one_socket(world):
    asked = Asked(world, "parent")
    asked.until_all_answer()
    asked.check()


@test
def a_stopped_worker_holds_up_the_datagrams_of_its_own_socket_alone(world):
    holds_up_its_own_datagrams_alone(world, stopped)


@test
def a_stopped_worker_with_a_listener_of_its_own_holds_up_its_share_alone(world):
    holds_up_its_share_alone(world, stopped)


@test
def a_frozen_worker_with_a_listener_of_its_own_holds_up_its_share_alone(world):
    holds_up_its_share_alone(world, frozen)


@test
def a_worker_with_a_listener_of_its_own_in_a_debugger_holds_up_its_share_alone(world):
    holds_up_its_share_alone(world, debugged)


@test
def calls_on_a_connection_whose_owner_is_stopped_hold_up_nobody_and_are_not_lost(world):
    server = world.stack(*world.program("stopped_owner.py"), world.address, 7870)
    world.wait_port(7870, process=server)
    with world.connect(7870, 30) as sock:
        sock.sendall(b"x")
        said = [int(word) for word in sock.makefile().readline().split()]
    spent, waited = said[0], said.pop(4)
    assert spent < 1000 and 200 <= waited < 1000, f"{spent} ms, {waited} ms"
    assert said[1:] == [77, 1, 300, 77, 1], said


def is_told_all(world, way):
    server = world.stack(*world.program("stopped_owner.py"), world.address, 7870)
    world.wait_port(7870, process=server)
    with world.connect(7870, 30) as sock:
        sock.sendall(way)
        said = sock.makefile().readline()
        assert said == "said 77 1\n", said


@test
def a_stopped_owner_is_told_all_of_a_child_that_ends(world):
    is_told_all(world, b"e")


@test
def a_stopped_owner_is_told_all_of_a_child_that_becomes_another_program(world):
    is_told_all(world, b"b")


@test
def a_child_serves_in_recvfrom_while_its_parent_is_stopped(world):
    serves_while_its_parent_is_held(world, "recv", 1)


@test
def a_child_that_has_just_begun_serves_while_its_parent_is_held(world):
    serves_while_its_parent_is_held(world, "recv")


@test
def a_child_that_begins_then_serves_while_its_parent_is_held(world):
    serves_while_its_parent_is_held(world, "late")


@test
def a_child_serves_by_epoll_while_its_parent_is_stopped(world):
    serves_while_its_parent_is_held(world, "epoll")


@test
def a_child_serves_by_poll_while_its_parent_is_stopped(world):
    serves_while_its_parent_is_held(world, "poll")


@test
def a_child_serves_by_recvmmsg_while_its_parent_is_stopped(world):
    serves_while_its_parent_is_held(world, "many")


@test
def a_child_serves_beside_its_parent_while_that_is_stopped(world):
    serves_while_its_parent_is_held(world, "parent", 1)


@test
def a_grandchild_serves_while_the_owner_is_stopped(world):
    serves_while_its_parent_is_held(world, "grandchild")


@test
def nothing_is_lost_while_a_parent_that_serves_is_stopped_again_and_again(world):
    echo(world)
    words = ("parent", LENDER_PORT, world.peer_address, ECHO_PORT)
    server = world.stack(*world.program("stopped_lender.py"), *words)
    parent, _ = map(int, server.words_after("workers"))
    with world.at_peer():
        socks = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(LENDER_FLOWS)]
    sent = []
    for turn in range(5):
        with stopped(parent):
            for part in range(5):
                sent.append(b"%d %d" % (turn, part))
                for sock in socks:
                    send(sock, world, sent[-1:])
                time.sleep(0.05)
        time.sleep(0.05)
    for sock in socks:
        answers = [text for _, text in heard(sock, len(sent))]
        answers += [text for _, text in heard(sock, 1, 0.05)]
        assert sorted(answers) == sorted(sent), answers


@test
def a_child_serves_while_its_parent_is_frozen(world):
    serves_while_its_parent_is_held(world, "recv", hold=frozen)


@test
def a_child_serves_while_its_parent_is_in_a_debugger(world):
    serves_while_its_parent_is_held(world, "epoll", hold=debugged)

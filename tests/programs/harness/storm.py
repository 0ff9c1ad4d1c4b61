"""Changes of a running network, as many as possible, over the control protocol itself, with a
check that each is applied completely or not at all."""

import contextlib
import json
import random
import socket
import threading
import time

# That of crates/netctl/src/message.rs.
VERSION = 6
# Pairs of an address and a route that needs it: one never holds without the other.
PAIRS = 8
# Changes in a message: the address and the route of as many pairs as this comes to.
CHANGES = 2 * PAIRS


def address(pair):
    return f"10.77.0.{100 + pair}"


def network(pair):
    return f"192.168.{pair}.0"


class Control:
    """A connection to the present keeper."""

    def __init__(self, world):
        self.world, self.socket = world, None

    def ask(self, query):
        """The answer; `None`: the keeper died before it gave one."""
        try:
            if self.socket is None:
                self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
                self.socket.settimeout(5)
                path = next(self.world.run_dir.glob("*-eth1/control"))
                self.socket.connect(str(path))
            call = {"Net": {"version": VERSION, "query": query}}
            self.socket.sendall(json.dumps(call).encode())
            answer = self.socket.recv(1 << 17)
            if answer:
                return json.loads(answer)["Net"]
        except (OSError, StopIteration):
            pass
        if self.socket:
            self.socket.close()
        self.socket = None
        time.sleep(0.01)
        return None

    def network(self):
        for _ in range(500):
            answer = self.ask("Network")
            if answer:
                return answer["Network"]
        raise AssertionError("no keeper has answered for five seconds")


def change(pairs, is_there):
    """Adds the pairs or removes them."""
    changes = []
    for pair in pairs:
        route = {
            "to": [network(pair), 24],
            "via": "10.77.0.1",
            "vlan": None,
            "table": 254,
            "metric": 0,
            "source": address(pair),
            "mtu": None,
            "refusal": None,
        }
        key = {"to": [network(pair), 24], "table": 254, "via": None, "metric": None, "vlan": None}
        own = {"interface": "eth1", "address": [address(pair), 32], "mode": "Add"}
        gone = {"interface": "eth1", "ip": address(pair), "prefix_len": None}
        both = [
            {"AddAddress": own | {"is_certain": True}},
            {"AddRoute": {"route": route, "mode": "Add"}},
        ]
        changes += both if is_there else [{"DelRoute": key}, {"DelAddress": gone}]
    return {"Set": changes}


def pairs_of(state):
    """The pairs that hold; fails for one of which only a half does."""
    own = {ip for it in state["interfaces"] for ip, _ in it["addresses"]}
    routes = {route["to"][0]: route["source"] for route in state["routes"]}
    found = set()
    for pair in range(PAIRS):
        halves = address(pair) in own, routes.get(network(pair)) == address(pair)
        assert halves[0] == halves[1], f"pair {pair}: address, route {halves}"
        found |= {pair} if halves[0] else set()
    assert found in (set(), set(range(PAIRS))), f"some of one message's pairs: {found}"
    return found


class Visitor(threading.Thread):
    """One connection that sends requests all the time."""

    def __init__(self, world, port, over):
        super().__init__(daemon=True)
        self.client = world.connect(port)
        self.client.settimeout(5)
        self.over, self.answers, self.failure = over, 0, None

    def run(self):
        lines = self.client.makefile("rb")
        try:
            while not self.over.is_set():
                self.client.sendall(b"who\n")
                assert lines.readline().endswith(b"\n")
                self.answers += 1
        except (OSError, AssertionError) as failure:
            self.failure = failure


class Storm(threading.Thread):
    """Adds and removes all pairs again and again; another thread checks the result."""

    def __init__(self, world):
        super().__init__(daemon=True)
        self.world, self.is_over = world, threading.Event()
        self.made = self.lost = self.seen = 0
        self.failure = None

    def run(self):
        watcher = threading.Thread(target=self.guarded, args=(self.watch,), daemon=True)
        watcher.start()
        self.guarded(self.change)
        watcher.join(10)

    def guarded(self, work):
        try:
            work()
        except Exception as failure:  # The thread that waits raises it.
            self.failure = self.failure or failure
            self.is_over.set()

    def change(self):
        control = Control(self.world)
        is_there = bool(pairs_of(control.network()))
        while not self.is_over.is_set():
            answer = control.ask(change(range(PAIRS), not is_there))
            if answer is None:
                # Old or new: the successor reports which.
                self.lost += 1
                is_there = bool(pairs_of(control.network()))
                continue
            assert "Changed" in answer, answer
            is_there = not is_there
            self.made += CHANGES

    def watch(self):
        control = Control(self.world)
        while not self.is_over.wait(random.uniform(0, 0.02)):
            pairs_of(control.network())
            self.seen += 1

    def end(self):
        """Stops, and returns whether the pairs exist now."""
        self.is_over.set()
        self.join(20)
        if self.failure:
            raise self.failure
        return bool(pairs_of(Control(self.world).network()))


@contextlib.contextmanager
def storm(world):
    it = Storm(world)
    it.start()
    try:
        yield it
    finally:
        it.is_over.set()
        it.join(20)

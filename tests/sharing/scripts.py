"""Scripts for families: lists of (member, line)."""

import random

from family import FIRST, PEER

PORT = 7000
LISTENER, NUMBERS, PEER_NUMBERS = 20, range(21, 30), 31
CONNECTIONS_MAX, MEMBERS_MAX, CHILDREN_MAX = 3, 4, 6
STEPS = (14, 40)
# Events of epoll(7): IN, OUT, RDHUP, ET, ONESHOT.
EVENTS = ("1", "5", "80000001", "40000001", "2001", "80002005")
# Calls, by how often they are made.
OF_PEER = {"write": 40, "read": 30, "poll": 10, "shutdown": 5, "close": 4}
OF_MEMBER = {
    "write": 22, "read": 16, "write-waiting": 8, "read-waiting": 8, "poll": 8, "wait": 6,
    "close": 6, "peek": 5, "unread": 5, "collect": 8, "watch": 5, "shutdown": 4, "option": 6,
    "dup": 3, "flags": 3, "nonblocking": 2,
}  # fmt: skip
# Bytes that one process has looked for may be with it: no other reads them afterwards.
LOOKS = {"poll", "wait", "peek", "watch"}
READS = LOOKS | {"read", "read-waiting", "unread"}


class Writer:
    """A random script, of calls that make sense for who has which socket."""

    children_max, steps = CHILDREN_MAX, STEPS
    of_peer, of_member = OF_PEER, OF_MEMBER

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.script = [(FIRST, f"listen {LISTENER} {PORT}")]
        # Of each member: its connections, and its epoll sets, by number.
        self.connections = {FIRST: {}, PEER: {}}
        self.sets = {FIRST: set()}
        self.listeners = {FIRST}
        self.messages = {}
        self.readers = {}
        self.children = self.words = self.made = 0

    def write(self):
        length = self.random.randint(*self.steps)
        self.connect()
        while len(self.script) < length:
            self.add()
        self.end()
        return self.script

    def say(self, member, *words):
        self.script.append((member, " ".join(map(str, words))))

    def alive(self):
        return [name for name in self.connections if name != PEER]

    def free(self, member):
        used = set(self.connections[member]) | self.sets[member]
        return next((number for number in NUMBERS if number not in used), None)

    def connect(self):
        holders = [name for name in self.alive() if name in self.listeners]
        if self.made == CONNECTIONS_MAX or not holders:
            return
        member = self.random.choice(holders)
        number, peers = self.free(member), PEER_NUMBERS + self.made
        if number is None:
            return
        self.say(PEER, "connect", peers, "ADDRESS", PORT)
        self.say(member, "accept", LISTENER, number)
        self.connections[PEER][peers] = self.connections[member][number] = self.made
        self.made += 1

    def add(self):
        alive, chance = self.alive(), self.random.random()
        member = self.random.choice(alive * 2 + [PEER])
        if chance < 0.05:
            self.connect()
        elif member == PEER:
            self.add_peers()
        elif chance < (0.45 if len(alive) == 1 else 0.2):
            self.add_child(member)
        elif chance < 0.23:
            self.say(member, "exec")
            self.sets[member].clear()
        elif chance < 0.28:
            self.end_one()
        elif chance < 0.35:
            self.send(member)
        elif self.messages.get(member) and self.random.random() < 0.6:
            self.receive(member)
        else:
            self.add_call(member)

    def add_peers(self):
        mine = self.connections[PEER]
        if not mine:
            return
        number = self.random.choice(list(mine))
        verb = self.pick(self.of_peer)
        if verb == "close":
            # With unread bytes it is a reset.
            if self.random.random() < 0.6:
                self.say(PEER, "read", number, 4000)
        if verb in ("close", "reset"):
            del mine[number]
        last = {"write": [self.word()], "read": [4000], "shutdown": [1]}.get(verb, [])
        self.say(PEER, verb, number, *last)

    def pick(self, weights):
        return self.random.choices(list(weights), list(weights.values()))[0]

    def word(self):
        self.words += 1
        length = self.random.choice([1, 3, 8, 40])
        return "".join(self.random.choices("abcdefgh", k=length)) + str(self.words)

    def add_child(self, parent):
        if len(self.alive()) == MEMBERS_MAX or self.children >= self.children_max:
            return
        self.children += 1
        child, verb = f"K{self.children}", self.random.choice(["fork", "fork", "spawn"])
        self.say(parent, verb, child)
        self.connections[child] = dict(self.connections[parent])
        self.sets[child] = set(self.sets[parent]) if verb == "fork" else set()
        if parent in self.listeners:
            self.listeners.add(child)

    def end_one(self):
        alive = self.alive()
        member = self.random.choice(alive)
        if len(alive) > 1 and (member != FIRST or self.random.random() < 0.4):
            self.leave(member)

    def leave(self, member):
        """What it alone may read is read, or the connection would be reset."""
        for number, connection in self.connections[member].items():
            if self.readers.get(connection) == member:
                self.say(member, "read", number, 4000)
                del self.readers[connection]
        self.say(member, "exit")
        del self.connections[member]

    def send(self, member):
        if self.connections[member]:
            number = self.random.choice(list(self.connections[member]))
            to = self.random.choice(self.alive())
            self.say(member, "send", number, to)
            self.messages.setdefault(to, []).append(self.connections[member][number])

    def receive(self, member):
        number = self.free(member)
        if number is not None:
            self.say(member, "receive", number)
            self.connections[member][number] = self.messages[member].pop(0)

    def add_call(self, member):
        mine = self.connections[member]
        if not mine:
            return
        number, verb = self.random.choice(list(mine)), self.pick(self.of_member)
        connection = mine[number]
        if verb in READS and self.readers.get(connection, member) != member:
            return
        if verb in LOOKS and member != FIRST:
            if self.random.random() < 0.6:
                return
            self.readers[connection] = member
        self.make_call(member, verb, number)

    def make_call(self, member, verb, number):
        mine = self.connections[member]
        if verb == "collect" or verb == "watch":
            self.add_epoll(member, verb, number)
        elif verb == "dup":
            other = self.free(member)
            if other is not None:
                self.say(member, "dup", number, other)
                mine[other] = mine[number]
        else:
            self.say(member, verb, number, *self.last_words(member, verb))
            if verb == "close":
                del mine[number]

    def last_words(self, member, verb):
        choice = self.random.choice
        if verb.startswith("write"):
            return [self.word()]
        if verb in ("read", "read-waiting", "peek"):
            return [choice([1, 2, 5, 4000])]
        if verb == "shutdown":
            return [choice([0, 1, 1, 2]) if member == FIRST else 1]
        if verb == "nonblocking":
            return [choice([0, 1])]
        if verb == "option":
            names = ["nodelay", "keepalive"]
            return choice([["error"], [choice(names), *choice([[], [0], [1]])]])
        return []

    def add_epoll(self, member, verb, number):
        sets = self.sets[member]
        if verb == "collect" and sets:
            self.say(member, "collect", *sets)
        if verb == "watch":
            if not sets:
                place = self.free(member)
                if place is None:
                    return
                self.say(member, "epoll", place)
                sets.add(place)
            self.say(member, "watch", *sets, number, self.random.choice(EVENTS))

    def end(self):
        """Everything is read, and everybody ends."""
        for number in self.connections[PEER]:
            self.say(PEER, "read", number, 4000)
            self.say(PEER, "poll", number)
        for member in self.alive():
            for number, connection in self.connections[member].items():
                if self.readers.get(connection, member) == member:
                    self.say(member, "read", number, 4000)
        for member in self.alive()[::-1]:
            self.leave(member)
        for number in self.connections[PEER]:
            self.say(PEER, "read", number, 4000)
            self.say(PEER, "wait", number)


def written(text):
    """A script from lines of the form `MEMBER CALL …`."""
    lines = (line.split(maxsplit=1) for line in text.splitlines() if line)
    return [(member, call) for member, call in lines]

"""Scripts for families: lists of (member, line)."""

import random

from connections import Connections
from datagrams import Datagrams
from family import FIRST, PEER
from listeners import Listeners

NUMBERS, PEER_NUMBERS = range(21, 30), range(31, 60)
MEMBERS_MAX, CHILDREN_MAX = 4, 6
STEPS = (14, 40)
# Events of epoll(7): IN, OUT, RDHUP, ET, ONESHOT.
EVENTS = ("1", "5", "80000001", "40000001", "2001", "80002005")
# What a script is about, and how often its calls are for which kind of socket.
THEMES = {
    "connections": {"connection": 1},
    "datagrams": {"datagrams": 1},
    "listeners": {"listener": 3, "connection": 2},
    "mixed": {"connection": 3, "listener": 2, "datagrams": 2},
}


class EpollSet:
    """`collector`: the only member that waits on it, as an event goes to one process on the kernel
    and to each of several here."""

    def __init__(self):
        self.collector = None
        self.watched = []


class Writer:
    """A random script, of calls that make sense for who has which socket."""

    children_max, steps = CHILDREN_MAX, STEPS

    def __init__(self, seed, theme=None):
        self.random = random.Random(seed)
        self.theme = theme or list(THEMES)[seed % len(THEMES)]
        self.script = []
        # Of each member: its sockets and its epoll sets, by number.
        self.held = {FIRST: {}, PEER: {}}
        self.sets = {FIRST: {}}
        # Sockets in messages that are on their way to a member.
        self.messages = {}
        # The member whose next answer the script has not taken yet.
        self.busy = None
        self.children = self.words = 0
        self.connections = Connections(self)
        self.listeners = Listeners(self)
        self.datagrams = Datagrams(self)
        self.kinds = {it.KIND: it for it in (self.connections, self.listeners, self.datagrams)}

    def write(self):
        length = self.random.randint(*self.steps)
        shares = THEMES[self.theme]
        for kind in shares:
            self.kinds[kind].begin()
        while len(self.script) < length:
            self.add(shares)
        self.end()
        return self.script

    # For the kinds of sockets

    def say(self, member, *words):
        self.script.append((member, " ".join(map(str, words))))

    def alive(self):
        return [name for name in self.held if name not in (PEER, self.busy)]

    def free(self, member):
        if member == PEER:
            return next(number for number in PEER_NUMBERS if number not in self.held[PEER])
        used = {*self.held[member], *self.sets[member]}
        return next((number for number in NUMBERS if number not in used), None)

    def mine(self, member, kind):
        """The numbers under which a member has sockets of a kind."""
        return [number for number, it in self.held[member].items() if it.kind == kind]

    def holders(self, socket):
        """The members that have a socket, or will find it in a message."""
        members = [name for name, held in self.held.items() if socket in held.values()]
        waiting = [name for name, sockets in self.messages.items() if socket in sockets]
        return set(members + waiting)

    def is_open(self, socket):
        return bool(self.holders(socket))

    def pick(self, weights):
        return self.random.choices(list(weights), list(weights.values()))[0]

    def chance(self, share):
        return self.random.random() < share

    def word(self):
        self.words += 1
        length = self.random.choice([1, 3, 8, 40])
        return "".join(self.random.choices("abcdefgh", k=length)) + str(self.words)

    # Steps

    def add(self, shares):
        alive, chance = self.alive(), self.random.random()
        member = self.random.choice(alive * 2 + [PEER])
        kind = self.kinds[self.pick(shares)]
        if chance < 0.05:
            kind.open(member)
        elif member == PEER:
            kind.add_peers()
        elif chance < (0.45 if len(alive) == 1 else 0.2):
            self.add_child(member)
        elif chance < 0.23:
            for number, it in self.held[member].items():
                self.kinds[it.kind].drain(member, number)
            self.say(member, "exec")
            self.sets[member].clear()
            self.forget_hidden(member)
            self.tell_of_end(member)
        elif chance < 0.28:
            self.end_one()
        elif chance < 0.35:
            self.send(member)
        elif self.messages.get(member) and self.chance(0.6):
            self.receive(member)
        elif chance < 0.40:
            kind.add_wait(member)
        else:
            self.add_call(member, kind)

    def forget_hidden(self, member):
        """Sockets that `accept4` has made close-on-exec."""
        held = self.held[member]
        for number in [number for number, it in held.items() if it.is_hidden]:
            del held[number]

    def add_child(self, parent):
        if len(self.alive()) == MEMBERS_MAX or self.children >= self.children_max:
            return
        self.children += 1
        child, verb = f"K{self.children}", self.random.choice(["fork", "fork", "spawn"])
        self.say(parent, verb, child)
        self.held[child] = dict(self.held[parent])
        self.sets[child] = dict(self.sets[parent]) if verb == "fork" else {}
        if verb == "spawn":
            self.forget_hidden(child)

    def tell_of_end(self, member, sockets=None):
        """The member, or its program, lets sockets go, all if not told otherwise."""
        for socket in list(self.held[member].values()) if sockets is None else sockets:
            self.kinds[socket.kind].let_go(member, socket)

    def end_one(self):
        alive = self.alive()
        member = self.random.choice(alive)
        if len(alive) > 1 and (member != FIRST or self.chance(0.4)):
            self.leave(member)

    def leave(self, member):
        """What it alone may read is read, or the connection would be reset."""
        for number, it in self.held[member].items():
            if it.reader == member:
                self.say(member, "read", number, 4000)
                it.reader = None
            self.kinds[it.kind].drain(member, number)
        self.say(member, "exit")
        self.tell_of_end(member)
        del self.held[member]
        self.messages.pop(member, None)

    def send(self, member):
        if self.held[member]:
            number = self.random.choice(list(self.held[member]))
            to = self.random.choice(self.alive())
            self.say(member, "send", number, to)
            socket = self.held[member][number]
            self.messages.setdefault(to, []).append(socket)
            self.kinds[socket.kind].sent(socket)

    def receive(self, member):
        number = self.free(member)
        if number is not None:
            self.say(member, "receive", number)
            self.held[member][number] = self.messages[member].pop(0)

    def add_call(self, member, kind):
        mine = self.mine(member, kind.KIND)
        if not mine:
            return
        number = self.random.choice(mine)
        socket, verb = self.held[member][number], kind.call(member, number)
        if verb in ("collect", "watch"):
            self.add_epoll(member, verb, number)
        elif verb == "dup":
            other = self.free(member)
            if other is not None:
                self.say(member, "dup", number, other)
                self.held[member][other] = socket
        elif verb == "close":
            self.say(member, "close", number)
            del self.held[member][number]
            if socket not in self.held[member].values():
                self.tell_of_end(member, [socket])

    def add_epoll(self, member, verb, number):
        sets = self.sets[member]
        if verb == "collect" and self.may_collect(member):
            self.say(member, "collect", *sets)
        if verb == "watch":
            if not sets:
                place = self.free(member)
                if place is None:
                    return
                self.say(member, "epoll", place)
                sets[place] = EpollSet()
            self.say(member, "watch", *sets, number, self.random.choice(EVENTS))
            for it in sets.values():
                it.watched.append(self.held[member][number])

    def may_collect(self, member, is_later=False):
        sets = self.sets[member].values()
        may = all(
            it.collector in (None, member)
            and all(self.kinds[of.kind].may_collect(member, of, is_later) for of in it.watched)
            for it in sets
        )
        for it in sets if may else ():
            it.collector = member
        return bool(sets) and may

    def end(self):
        """Everything is read, and everybody ends."""
        for number in self.held[PEER]:
            self.say(PEER, "read", number, 4000)
            self.say(PEER, "poll", number)
        for member in self.alive():
            for number, it in self.held[member].items():
                self.kinds[it.kind].read_all(member, number)
        for member in self.alive()[::-1]:
            self.leave(member)
        for number in self.held[PEER]:
            self.say(PEER, "read", number, 4000)
            self.say(PEER, "wait", number)


def written(text):
    """A script from lines of the form `MEMBER CALL …`."""
    lines = (line.split(maxsplit=1) for line in text.splitlines() if line)
    return [(member, call) for member, call in lines]

"""Scripts for families whose processes have threads, with calls that wait while others act."""

from connections import CONNECTIONS_MAX, OF_MEMBER, OF_PEER, PORT, Connection, Connections
from family import FIRST, PEER
from listeners import Listener
from scripts import EVENTS, NUMBERS, Writer

THREADS_MAX, THREADS_MADE_MAX = 4, 16
# Nobody answers there: the peer does not forward.
NOBODY = "10.99.0.1"
UDP_PORT, PEER_UDP_PORT = 7001, 7101
FILL = 16_000_000
# Time limits of a receive, in ms: one ends before the next line, another one never.
LIMITS = (20, 60_000, 0)
# What a script does, by how often.
DOES = {"thread": 8, "begin": 24, "result": 14, "wake": 12, "leave": 3, "other": 44}
WAITS = {
    "get": 22, "get-all": 8, "look": 4, "await": 12, "select": 6, "fill": 5, "take": 10,
    "listener": 4, "gather": 14, "connect": 5,
}  # fmt: skip
WAKES = {"restarting": 3, "interrupting": 5, "cancel": 2}


class Wait:
    """A call that a thread has begun, and may still be in. `kept`: connections, listeners and sets
    on which nobody else may wait now, because which of both is served is not determined. `number`:
    that of a connection to be accepted."""

    def __init__(self, process, kept, number):
        self.process, self.kept, self.number = process, kept, number


class Unfilled(Connection):
    """A UDP socket, or a connection that nobody accepts."""


class ThreadConnections(Connections):
    """Part of a `ThreadWriter`."""

    of_peer = {**OF_PEER, "reset": 3, "close": 6, "shutdown": 7, "poll": 4}
    of_member = {**OF_MEMBER, "close": 9, "shutdown": 8, "over": 4, "limit": 4, "rewatch": 6,
                 "unwatch": 4, "watch": 8, "nonblocking": 5, "disconnect": 1}  # fmt: skip

    def open(self, member):
        """A listener that a thread waits on has one of those that wait."""
        writer = self.writer
        found = ((name, it) for name, wait in writer.waits.items() for it in wait.kept)
        name, listener = next((it for it in found if isinstance(it[1], Listener)), (None, None))
        if name is None or self.made == CONNECTIONS_MAX:
            super().open(member)
            return
        wait = writer.waits[name]
        held = writer.held[wait.process]
        number = wait.number or writer.free(wait.process)
        if number is None:
            return
        del writer.waits[name]
        peers = writer.free(PEER)
        writer.say(PEER, "connect", peers, "ADDRESS", listener.port)
        writer.say_as(name, "result")
        if wait.number is None:
            place = next(place for place, it in held.items() if it is listener)
            writer.say(wait.process, "accept", place, number)
        self.add_ends(PEER, peers, wait.process, number)

    def add_wait(self, member):
        self.writer.add_wait(member)

    def make(self, member, verb, number):
        writer = self.writer
        held, sets = writer.held[member], writer.sets[member]
        if verb == "over":
            other = writer.random.choice(writer.mine(member, self.KIND))
            writer.say(member, "dup", other, number)
            held[number] = held[other]
        elif verb in ("rewatch", "unwatch"):
            if sets:
                last = [writer.random.choice(EVENTS)] if verb == "rewatch" else []
                writer.say(member, verb, *sets, number, *last)
        elif verb == "disconnect":
            if writer.children_max == 0:
                writer.say(member, verb, number)
        elif verb != "watch" or not writer.is_waited_for({(held[number], way) for way in "rw"}):
            return super().make(member, verb, number)
        return None

    def last_words(self, member, verb):
        if verb == "limit":
            return [self.writer.random.choice(LIMITS)]
        return super().last_words(member, verb)


class ThreadWriter(Writer):
    """Chooses which thread of a process makes a call as it is said."""

    steps = 20, 50

    def __init__(self, seed):
        super().__init__(seed, "connections")
        self.connections = self.kinds[Connections.KIND] = ThreadConnections(self)
        self.threads = {FIRST: [FIRST], PEER: [PEER]}
        self.waits = {}
        # Connections with more bytes than a script can count.
        self.filled = set()
        self.threads_made = 0
        self.children_max = 2 if self.random.random() < 0.4 else 0
        if self.children_max == 0 and self.random.random() < 0.4:
            self.add_udp()

    def say(self, process, *words):
        filled = len(words) > 1 and self.held[process].get(words[1]) in self.filled
        if filled and words[0].startswith("write") and process != PEER:
            return
        if filled and words[0] == "read" and process == PEER:
            words = "drain", words[1]
        name = self.random.choice(self.idle(process))
        self.say_as(name, *words)
        if words[0] in ("fork", "spawn"):
            self.threads[words[1]] = [words[1]]
        if words[0] in ("exec", "exit"):
            for other in self.threads[process]:
                self.waits.pop(other, None)
            self.threads[process] = [name]

    def say_as(self, name, *words):
        self.script.append((name, " ".join(map(str, words))))

    def idle(self, process):
        return [name for name in self.threads[process] if name not in self.waits]

    def is_waited_for(self, kept):
        return any(kept & wait.kept for wait in self.waits.values())

    # What is done next

    def add(self, shares):
        process, what = self.random.choice(self.alive()), self.pick(DOES)
        if what == "thread":
            self.add_thread(process)
        elif what == "begin":
            self.add_wait(process)
        elif what == "leave":
            self.add_leave(process)
        elif what == "other":
            super().add(shares)
        elif self.waits:
            name = self.random.choice(list(self.waits))
            if what == "wake":
                self.wake(name)
            self.say_as(name, "result")

    def add_udp(self):
        number, peers = self.free(FIRST), self.free(PEER)
        self.say(FIRST, "udp", number, "0.0.0.0", UDP_PORT)
        self.say(PEER, "udp", peers, "0.0.0.0", PEER_UDP_PORT)
        self.say(PEER, "reconnect", peers, "ADDRESS", UDP_PORT)
        if self.chance(0.5):
            self.say(FIRST, "reconnect", number, "PEER", PEER_UDP_PORT)
        self.held[FIRST][number] = self.held[PEER][peers] = Unfilled()

    def add_thread(self, process):
        if len(self.threads[process]) < THREADS_MAX and self.threads_made < THREADS_MADE_MAX:
            self.threads_made += 1
            name = f"T{self.threads_made}"
            self.say(process, "thread", name)
            self.threads[process].append(name)

    def add_leave(self, process):
        if len(self.idle(process)) > 1:
            name = self.random.choice(self.idle(process))
            self.say_as(name, "leave")
            self.threads[process].remove(name)

    def add_child(self, parent):
        before = self.children
        super().add_child(parent)
        if self.children > before:
            # Sets that processes share are not what this is about.
            self.sets[f"K{self.children}"] = {}

    def wake(self, name):
        verb, process = self.pick(WAKES), self.waits[name].process
        self.say(process, verb, name)
        if verb != "restarting":
            del self.waits[name]
        if verb == "cancel":
            self.threads[process].remove(name)

    def end(self):
        for name, wait in list(self.waits.items()):
            self.say_as(name, "result")
            if self.random.random() < 0.6:
                self.say(wait.process, "interrupting", name)
                self.say_as(name, "result")
                del self.waits[name]
        super().end()

    # Calls that wait

    def add_wait(self, process):
        idle = self.idle(process)
        if len(idle) < 2:
            self.add_thread(process)
            return
        verb = self.pick(WAITS)
        others = {"take": self.on_listener, "listener": self.on_listener, "gather": self.on_set,
                  "connect": self.on_nobody}  # fmt: skip
        found = others.get(verb, self.on_connection)(process, verb)
        if found is not None and not self.is_waited_for(found[0]):
            kept, *words = found
            name = self.random.choice(idle)
            self.say_as(name, "begin", *words)
            self.waits[name] = Wait(process, kept, words[2] if verb == "take" else None)

    def on_connection(self, process, verb):
        mine = self.mine(process, Connections.KIND)
        if not mine:
            return None
        number = self.random.choice(mine)
        connection = self.held[process][number]
        if not self.connections.may_read(process, connection):
            return None
        if process != FIRST and verb not in ("get", "fill"):
            connection.reader = process
        ways = {"get": "r", "get-all": "r", "look": "r", "fill": "w"}.get(verb, "rw")
        last = self.random.choice([1, 3, 10, 4000])
        if verb == "fill":
            if isinstance(connection, Unfilled):
                return None
            self.filled |= {connection, connection.other}
            last = FILL
        elif verb == "await":
            last = self.random.choice(["1", "2001", "2", "2000", "0", "5"])
        elif verb == "select":
            last = self.random.choice("rrwx")
        return {(connection, way) for way in ways}, verb, number, last

    def on_listener(self, process, verb):
        number, places = self.free(process), self.mine(process, Listener.kind)
        if not places or number is None:
            return None
        place = self.random.choice(places)
        kept = {self.held[process][place]}
        if verb == "take":
            return kept, verb, place, number
        return kept, *self.random.choice([("await", place, 1), ("select", place, "r")])

    def on_set(self, process, _):
        if not self.sets[process]:
            return None
        number, found = self.random.choice(list(self.sets[process].items()))
        ways = {(connection, way) for connection in found.watched for way in "rw"}
        return {found} | ways, "gather", number

    def on_nobody(self, process, verb):
        number = self.free(process)
        if number is None:
            return None
        connection = self.held[process][number] = Unfilled()
        return {(connection, "w")}, verb, number, NOBODY, PORT

    # Calls beside them

    def free(self, member):
        if member == PEER:
            return super().free(member)
        taken = {wait.number for wait in self.waits.values() if wait.process == member}
        used = {*taken, *self.held[member], *self.sets[member]}
        return next((number for number in NUMBERS if number not in used), None)

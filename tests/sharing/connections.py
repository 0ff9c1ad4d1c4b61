"""Calls of random families on connections."""

from family import FIRST, PEER

PORT, PEERS_PORT, CLOSED_PORT = 7000, 7100, 7199
PEERS_LISTENER = 30
CONNECTIONS_MAX = 4
# Calls, by how often they are made.
OF_PEER = {"write": 40, "read": 30, "poll": 10, "shutdown": 5, "close": 4}
OF_MEMBER = {
    "write": 22, "read": 16, "write-waiting": 8, "read-waiting": 8, "poll": 8, "wait": 6,
    "close": 6, "peek": 5, "unread": 5, "collect": 8, "watch": 5, "shutdown": 4, "option": 6,
    "dup": 3, "flags": 3, "nonblocking": 2, "peer-name": 1,
}  # fmt: skip
# Bytes that one process has looked for may be with it: no other reads them afterwards.
LOOKS = {"poll", "wait", "peek", "watch"}
READS = LOOKS | {"read", "read-waiting", "unread"}
# How long a call waits that another member's call may end.
LATER_MS = 700


class Connection:
    """One end of a connection. `reader`: the only member that may read from it. `other`: the other
    end."""

    kind = "connection"

    def __init__(self, is_hidden=False):
        self.reader = None
        self.other = None
        # Closed by exec.
        self.is_hidden = is_hidden


class Connections:
    """Part of a `Writer`."""

    KIND = "connection"
    of_peer, of_member = OF_PEER, OF_MEMBER

    def __init__(self, writer):
        self.writer = writer
        self.made = 0
        self.has_listener = False

    def begin(self):
        writer = self.writer
        if writer.theme != "connections":
            writer.say(PEER, "listen", PEERS_LISTENER, PEERS_PORT)
            self.has_listener = True
        listener = writer.listeners.listen(FIRST, PORT)
        self.accepted(FIRST, listener)

    def open(self, member):
        """A new connection, in one of several ways."""
        writer = self.writer
        if self.made == CONNECTIONS_MAX:
            return
        found = [
            (name, number)
            for name in writer.alive()
            for number in writer.mine(name, "listener")
            if writer.held[name][number].listens and not writer.held[name][number].waiting
        ]
        ways = (["accept"] * 3 + ["own"]) * bool(found)
        ways += ["connect", "connect-begin", "refused"] * self.has_listener
        if member == PEER:
            ways = [way for way in ways if way == "accept"]
        if not self.has_listener:
            ways = ["accept"] * bool(found)
        if not ways:
            return
        way = writer.random.choice(ways)
        if way == "accept":
            self.accepted(*writer.random.choice(found))
        elif way == "own":
            self.of_two_members(member, *writer.random.choice(found))
        elif way == "refused":
            self.refused(member)
        else:
            self.to_peer(member, way)

    def accepted(self, member, listener):
        """A connection of the peer's that a member accepts at once."""
        writer = self.writer
        number = writer.free(member)
        if number is None:
            return
        port, peers = writer.held[member][listener].port, writer.free(PEER)
        writer.say(PEER, "connect", peers, "ADDRESS", port)
        writer.say(member, "accept", listener, number)
        self.add_ends(PEER, peers, member, number)

    def of_two_members(self, member, other, listener):
        """A connection over the stack's own address."""
        writer = self.writer
        number = writer.free(member)
        if number is None:
            return
        port = writer.held[other][listener].port
        verb = writer.random.choice(["connect", "connect-begin"])
        writer.say(member, verb, number, "ADDRESS", port)
        writer.held[member][number] = Connection()
        accepted = writer.free(other)
        if accepted is None:
            writer.held[other][listener].waiting.append(writer.held[member][number])
            return
        writer.say(other, "accept", listener, accepted)
        self.add_ends(member, number, other, accepted)

    def to_peer(self, member, verb):
        writer = self.writer
        number, peers = writer.free(member), writer.free(PEER)
        if number is None:
            return
        writer.say(member, verb, number, "PEER", PEERS_PORT)
        if writer.chance(0.3):
            writer.held[member][number] = Connection()
            writer.add_child(member)
        writer.say(PEER, "accept", PEERS_LISTENER, peers)
        self.add_ends(PEER, peers, member, number)

    def refused(self, member):
        writer = self.writer
        number = writer.free(member)
        if number is None:
            return
        verb = writer.random.choice(["connect", "connect-begin"])
        ip = writer.random.choice(["PEER", "ADDRESS"])
        writer.say(member, verb, number, ip, CLOSED_PORT)
        if writer.chance(0.3):
            writer.held[member][number] = Connection()
            writer.add_child(member)
        calls = {"poll": 3, "option": 3, "write": 1, "read": 1, "wait": 1, "reconnect": 2}
        for _ in range(writer.random.randint(1, 4)):
            verb = writer.pick(calls)
            last = {"option": ["error"], "write": ["x"], "read": [10]}.get(verb, [])
            if verb == "reconnect":
                last = [ip, CLOSED_PORT]
            writer.say(member, verb, number, *last)
        writer.held[member].pop(number, None)
        writer.say(member, "close", number)

    def add_ends(self, one, number, other, others):
        """The ends of a new connection; that of `one` may be there already."""
        held = self.writer.held
        first = held[one].get(number) or Connection()
        second = held[other].get(others) or Connection()
        first.other, second.other = second, first
        held[one][number], held[other][others] = first, second
        self.made += 1

    def add_peers(self):
        writer = self.writer
        mine = writer.mine(PEER, self.KIND)
        if not mine:
            return
        number = writer.random.choice(mine)
        verb = writer.pick(self.of_peer)
        if verb == "close":
            # With unread bytes it is a reset.
            if writer.chance(0.6):
                writer.say(PEER, "read", number, 4000)
        if verb in ("close", "reset"):
            del writer.held[PEER][number]
        last = {"write": [writer.word()], "read": [4000], "shutdown": [1]}.get(verb, [])
        writer.say(PEER, verb, number, *last)

    def may_read(self, member, socket):
        return socket.reader in (None, member)

    def drain(self, member, number):
        pass

    def let_go(self, member, socket):
        pass

    def sent(self, socket):
        pass

    def may_collect(self, member, socket, is_later):
        return True

    def read_all(self, member, number):
        if self.may_read(member, self.writer.held[member][number]):
            self.writer.say(member, "read", number, 4000)

    def call(self, member, number):
        """Adds a call, or returns one that is the same for all kinds of sockets."""
        writer = self.writer
        socket, verb = writer.held[member][number], writer.pick(self.of_member)
        if verb in READS and not self.may_read(member, socket):
            return None
        if verb in LOOKS and member != FIRST:
            if writer.chance(0.6):
                return None
            socket.reader = member
        return self.make(member, verb, number)

    def make(self, member, verb, number):
        if verb in ("collect", "watch", "dup", "close"):
            return verb
        self.writer.say(member, verb, number, *self.last_words(member, verb))
        return None

    def last_words(self, member, verb):
        choice = self.writer.random.choice
        if verb.startswith("write"):
            return [self.writer.word()]
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

    def add_wait(self, member):
        """A read or poll that waits while another process makes a call."""
        writer = self.writer
        mine = writer.mine(member, self.KIND)
        if not mine:
            return
        number = writer.random.choice(mine)
        socket = writer.held[member][number]
        if not self.may_read(member, socket):
            return
        verb = writer.random.choice(["read-waiting", "wait", "collect"])
        if verb == "read-waiting":
            writer.say(member, "begin read-waiting", number, 4000, LATER_MS)
        elif verb == "wait":
            socket.reader = member
            writer.say(member, "begin wait", number, LATER_MS)
        elif writer.may_collect(member, True):
            writer.say(member, "begin collect", *writer.sets[member], LATER_MS)
        else:
            return
        writer.busy = member
        self.add_event(socket)
        writer.busy = None
        writer.say(member, "answer")

    def add_event(self, socket):
        """What may end another member's wait."""
        writer, other = self.writer, socket.other
        ends = [
            (name, number)
            for name, held in writer.held.items()
            for number, it in held.items()
            if it is other and name != writer.busy
        ]
        if ends:
            name, number = writer.random.choice(ends)
            verb = writer.pick({"write": 5, "shutdown": 1, "close": 1})
            last = {"write": [writer.word()], "shutdown": [1]}.get(verb, [])
            writer.say(name, verb, number, *last)
            if verb == "close":
                del writer.held[name][number]

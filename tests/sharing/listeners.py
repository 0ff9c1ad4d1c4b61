"""Calls of random families on listeners."""

from connections import LATER_MS, PORT, Connection
from family import PEER

PORTS = range(PORT, PORT + 3)
WAITING_MAX = 3
OF_MEMBER = {
    "accept": 14, "accept-now": 10, "poll": 10, "wait": 6, "collect": 10, "watch": 8, "close": 8,
    "dup": 4, "name": 2, "nonblocking": 2, "flags": 2, "shutdown": 2, "listen-again": 2,
    "option": 2, "connect": 14,
}  # fmt: skip


class Listener:
    """`waiting`: the other ends of connections that nobody has accepted. `users`: the members that
    have looked for them, each of which may have those that come until another one waits."""

    kind = "listener"
    reader = None
    is_hidden = False

    def __init__(self, port):
        self.port = port
        self.listens = True
        self.waiting = []
        self.users = set()

    def is_exact(self, member):
        """Whether no other member may have what this one looks for."""
        return self.users <= {member}


class Listeners:
    """Part of a `Writer`."""

    KIND = "listener"

    def __init__(self, writer):
        self.writer = writer

    def begin(self):
        if "connection" not in self.writer.kinds:
            self.open("A")

    def open(self, member):
        """A new listener, at a port that another may have."""
        writer = self.writer
        if member != PEER and writer.free(member) is not None:
            self.listen(member, writer.random.choice(PORTS))

    def all(self):
        """All listeners that are open."""
        held = [it for held in self.writer.held.values() for it in held.values()]
        held += [it for sent in self.writer.messages.values() for it in sent]
        return {id(it): it for it in held if it.kind == self.KIND}.values()

    def listen(self, member, port):
        writer = self.writer
        number = writer.free(member)
        writer.say(member, "listen", number, port)
        if any(it.port == port and it.listens for it in self.all()):
            writer.say(member, "close", number)
            return None
        writer.held[member][number] = Listener(port)
        return number

    def add_peers(self):
        """A connection that may wait, or be refused."""
        writer = self.writer
        port = writer.random.choice(PORTS)
        found = [it for it in self.all() if it.port == port and it.listens]
        most = WAITING_MAX if found and len(found[0].users) < 2 else 1
        if found and (len(found[0].waiting) >= most or not writer.chance(0.8)):
            return
        number = writer.free(PEER)
        if not found and not writer.chance(0.4):
            return
        writer.say(PEER, "connect", number, "ADDRESS", port)
        if found:
            end = writer.held[PEER][number] = Connection()
            found[0].waiting.append(end)
        else:
            writer.say(PEER, "close", number)

    def drain(self, member, number):
        pass

    def let_go(self, member, socket):
        pass

    def sent(self, socket):
        pass

    def may_collect(self, member, socket, is_later):
        return is_later or socket.is_exact(member)

    def read_all(self, member, number):
        pass

    def call(self, member, number):
        writer = self.writer
        listener, verb = writer.held[member][number], writer.pick(OF_MEMBER)
        if verb in ("poll", "accept-now") and not listener.is_exact(member):
            verb = "wait"
        if verb in ("accept", "accept-now", "poll", "wait", "watch"):
            if len(listener.waiting) > 1 and not listener.is_exact(member):
                return None
            listener.users.add(member)
        if verb in ("collect", "watch", "dup", "close"):
            return verb
        if verb == "connect":
            self.add_peers()
        elif verb.startswith("accept"):
            self.accept(member, number, verb)
        else:
            last = {"shutdown": [0], "option": ["error"]}.get(verb, [])
            if verb == "nonblocking":
                last = [writer.random.choice([0, 1])]
            writer.say(member, verb, number, *last)
            if verb == "shutdown":
                listener.listens, listener.waiting = False, []
            if verb == "listen-again":
                listener.listens = True
        return None

    def accept(self, member, listener, verb):
        writer = self.writer
        waiting = writer.held[member][listener].waiting
        number = writer.free(member)
        if number is None or not waiting and verb == "accept":
            return
        writer.say(member, verb, listener, number)
        if waiting:
            self.add_end(member, number, waiting.pop(0), verb == "accept-now")

    def add_end(self, member, number, other, is_hidden):
        end = self.writer.held[member][number] = Connection(is_hidden)
        end.other, other.other = other, end
        if is_hidden and self.writer.chance(0.5):
            self.writer.say(member, "flags", number)

    def add_wait(self, member):
        """An accept or poll that waits while the peer connects, or another process closes."""
        writer = self.writer
        mine = writer.mine(member, self.KIND)
        number = writer.free(member)
        if not mine or number is None:
            return
        place = writer.random.choice(mine)
        listener = writer.held[member][place]
        if listener.waiting or not listener.listens:
            return
        listener.users.add(member)
        verb = writer.random.choice(["accept", "wait", "collect"])
        if verb == "accept":
            writer.say(member, "begin accept", place, number, LATER_MS)
        elif verb == "wait":
            writer.say(member, "begin wait", place, LATER_MS)
        elif writer.may_collect(member, True):
            writer.say(member, "begin collect", *writer.sets[member], LATER_MS)
        else:
            return
        peers = writer.free(PEER)
        writer.say(PEER, "connect", peers, "ADDRESS", listener.port)
        end = writer.held[PEER][peers] = Connection()
        writer.say(member, "answer")
        if verb == "accept":
            self.add_end(member, number, end, False)
        else:
            listener.waiting.append(end)

"""Calls of random families on UDP sockets."""

from connections import LATER_MS
from family import FIRST, PEER

PORTS, PEERS_PORTS, CLOSED_PORT = range(7200, 7203), range(7300, 7302), 7399
# The kernel limits how many errors it sends to one address.
ERRORS_MAX = 4
SOCKETS_MAX = 5
OF_PEER = {"sendto": 50, "from": 25, "poll": 5, "reply": 8}
OF_MEMBER = {
    "sendto": 22, "sendmsg": 6, "write": 8, "from": 16, "from-peek": 4, "from-waiting": 10,
    "read": 4, "peek": 2, "poll": 8, "wait": 6, "unread": 4, "collect": 8, "watch": 5, "close": 6,
    "dup": 3, "flags": 2, "nonblocking": 2, "option": 4, "name": 4, "peer-name": 2,
    "reconnect": 6, "disconnect": 2, "shutdown": 1, "reply": 5,
}  # fmt: skip
LENGTHS = (1, 5, 1000)


# Calls that may find a datagram at another process for a while if several serve a socket.
LOOKS = {"from", "from-peek", "read", "peek", "poll", "unread"}
WAITS = {"wait", "from-waiting"}


class Datagram:
    """A UDP socket. `port`: `None` if it is not bound; `to`: whom it is connected to; `queued`: how
    many datagrams may wait. `lender`: the member that makes the calls of all; once others serve the
    socket, too, it `is_apart`, and datagrams that came to one process go to another one that waits.
    """

    kind = "datagrams"
    reader = None
    is_hidden = False

    def __init__(self, port):
        self.port = port
        self.to = None
        self.users = set()
        self.lender = None
        self.is_apart = False
        self.queued = 0

    def is_exact(self, member):
        return not self.is_apart or self.users <= {member}


class Datagrams:
    """Part of a `Writer`."""

    KIND = "datagrams"

    def __init__(self, writer):
        self.writer = writer
        self.errors = self.made = 0

    def begin(self):
        for port in PEERS_PORTS:
            number = self.writer.free(PEER)
            self.writer.say(PEER, "udp", number, "PEER", port)
            self.writer.held[PEER][number] = Datagram(port)
        self.open(FIRST)

    def all(self):
        held = [it for held in self.writer.held.values() for it in held.values()]
        held += [it for sent in self.writer.messages.values() for it in sent]
        return {id(it): it for it in held if it.kind == self.KIND}.values()

    def open(self, member):
        writer = self.writer
        if member == PEER or self.made == SOCKETS_MAX:
            return
        number = writer.free(member)
        if number is None:
            return
        self.made += 1
        if writer.chance(0.15):
            writer.say(member, "udp", number)
            writer.held[member][number] = Datagram(None)
            return
        port = writer.random.choice(PORTS)
        writer.say(member, "udp", number, writer.random.choice(["ADDRESS", "0.0.0.0"]), port)
        is_taken = any(it.port == port for it in self.all())
        writer.held[member][number] = Datagram(None if is_taken else port)

    def add_peers(self):
        writer = self.writer
        number = writer.random.choice(writer.mine(PEER, self.KIND))
        verb = writer.pick(OF_PEER)
        if verb == "sendto":
            self.send_from_peer(number)
        elif verb == "from":
            writer.say(PEER, "from", number, writer.random.choice(LENGTHS))
        elif verb == "reply":
            writer.say(PEER, "from", number, 1000)
            writer.say(PEER, "reply", number, writer.word())
        else:
            writer.say(PEER, verb, number)

    def ports(self):
        """The ports of members that one may send to. Where several have a queue only one datagram
        is to wait, as their order is not kept."""
        found = [it for it in self.all() if it.port in PORTS]
        return [it.port for it in found if not it.is_apart or it.queued == 0]

    def note_sent(self, port):
        for it in self.all():
            it.queued += it.port == port

    def use(self, member, socket, waits, is_sure=True):
        """`is_sure`: the call does not fail early."""
        holders = self.writer.holders(socket)
        if not socket.users and holders == {member} and is_sure:
            socket.lender = member
        elif socket.lender is None or waits and member != socket.lender:
            socket.is_apart = True
        socket.users.add(member)

    def drain(self, member, number):
        """Reads what a member is the only one to have, if several could get it at its end."""
        socket = self.writer.held[member][number]
        others = self.writer.holders(socket) - {member}
        while socket.lender == member and socket.queued and len(others) > 1:
            self.writer.say(member, "from", number, 1000)
            socket.queued -= 1

    def let_go(self, member, socket):
        if socket.lender == member:
            socket.lender, socket.is_apart = None, True

    def sent(self, socket):
        socket.is_apart = True

    def may_collect(self, member, socket, is_later):
        return is_later or socket.is_exact(member)

    def read_all(self, member, number):
        socket = self.writer.held[member][number]
        if not socket.is_exact(member):
            self.writer.say(member, "wait", number)
        self.writer.say(member, "read", number, 4000)
        socket.queued = max(socket.queued - 1, 0)

    def send_from_peer(self, number):
        ports = self.ports()
        if ports and not self.writer.chance(0.05):
            port = self.writer.random.choice(ports)
        else:
            port = self.writer.random.choice(PORTS)
            if any(it.port == port for it in self.all()):
                return
        self.note_sent(port)
        self.writer.say(PEER, "sendto", number, "ADDRESS", port, self.writer.word())

    def whom(self, sends=True):
        """An address to send or connect to."""
        writer = self.writer
        ports = self.ports()
        if ports and writer.chance(0.35):
            port = writer.random.choice(ports)
            if sends:
                self.note_sent(port)
            return "ADDRESS", port
        if self.errors < ERRORS_MAX and writer.chance(0.08):
            self.errors += 1
            return writer.random.choice(["PEER", "ADDRESS"]), CLOSED_PORT
        return "PEER", writer.random.choice(PEERS_PORTS)

    def is_alone(self, member, socket):
        """Whether it is the only one that has a socket: options, the address that it is connected
        to and the end of a direction are of each process."""
        return self.writer.holders(socket) == {member} and not socket.is_apart

    def call(self, member, number):
        writer = self.writer
        socket, verb = writer.held[member][number], writer.pick(OF_MEMBER)
        if verb in ("dup", "close", "collect"):
            return verb
        is_alone = self.is_alone(member, socket)
        if verb in ("reconnect", "disconnect", "shutdown") and not is_alone:
            return None
        if socket.port is None and not is_alone:
            # Each process has a port of its own.
            return None
        if verb == "write" and socket.to and socket.to[1] == CLOSED_PORT:
            if self.errors == ERRORS_MAX:
                return None
            self.errors += 1
        if verb not in ("flags", "nonblocking"):
            is_sure = verb in LOOKS | WAITS | {"sendto"}
            self.use(member, socket, verb in WAITS or verb == "watch", is_sure)
        if verb == "watch":
            return verb
        if not socket.is_exact(member) and verb in LOOKS:
            if socket.queued > 1:
                return None
            writer.say(member, "wait", number)
            verb = "from"
        if verb in ("from", "read", "from-waiting"):
            socket.queued = max(socket.queued - 1, 0)
        writer.say(member, verb, number, *self.last_words(verb, socket))
        return None

    def last_words(self, verb, socket):
        writer = self.writer
        choice = writer.random.choice
        if verb in ("sendto", "sendmsg"):
            return [*self.whom(), writer.word()]
        if verb in ("write", "reply"):
            if socket.to and verb == "write":
                self.note_sent(socket.to[1])
            return [writer.word()]
        if verb in ("from", "from-peek", "from-waiting", "read", "peek"):
            return [choice(LENGTHS)]
        if verb == "nonblocking":
            return [choice([0, 1])]
        if verb == "option":
            return ["error"]
        if verb == "shutdown":
            return [choice([0, 1, 2])]
        if verb == "reconnect":
            socket.to = self.whom(sends=False)
            return socket.to
        if verb == "disconnect":
            socket.to = None
        return []

    def add_wait(self, member):
        """A call that waits while a datagram comes."""
        writer = self.writer
        mine = writer.mine(member, self.KIND)
        if not mine:
            return
        number = writer.random.choice(mine)
        socket = writer.held[member][number]
        verb = writer.random.choice(["from-waiting", "wait", "collect"])
        if socket.port not in self.ports() or socket.to:
            return
        self.use(member, socket, True)
        if not socket.is_exact(member) and socket.queued:
            return
        if verb == "from-waiting":
            writer.say(member, "begin from-waiting", number, 1000, LATER_MS)
        elif verb == "wait":
            writer.say(member, "begin wait", number, LATER_MS)
        elif writer.may_collect(member, True):
            writer.say(member, "begin collect", *writer.sets[member], LATER_MS)
        else:
            return
        peers = writer.random.choice(writer.mine(PEER, self.KIND))
        socket.queued += verb != "from-waiting"
        writer.say(PEER, "sendto", peers, "ADDRESS", socket.port, writer.word())
        writer.say(member, "answer")

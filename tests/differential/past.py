"""The state, numbers and windows of a TCP connection, as proved by the steps that both stacks
answered alike.

Numbers are relative to the first ones, as in scripts and outcomes. Nothing is assumed without
proof: the state changes only by segments of the target, or by a segment that no stack can
refuse."""

import re
from dataclasses import dataclass

PEERS = re.compile(r"^< (\S+) seq (-?\d+) ack (-?\d+) len (\d+) win (\d+)(?: with (.*))?$")
TARGETS = re.compile(r"> (\S+) seq (-?\d+|zero) ack (-?\d+) len (\d+)(?: options \(([\d, ]*)\))?")
# A distance that is beyond any window that a sequence offers.
BEYOND = 90_000
# The number of steps of a slow run of which three fit into half a second: challenge ACKs and ACKs
# of unacceptable segments are rate-limited.
HELD_BACK_STEPS = 4
# Steps after which unacknowledged data has been retransmitted, and steps during which a port
# changes hands (two seconds).
TIMEOUT_STEPS, MOVING_STEPS = 2, 12
AFTER_OUR_FIN = {
    "ESTABLISHED": "FIN-WAIT-1",
    "SYN-RECEIVED": "FIN-WAIT-1",
    "CLOSE-WAIT": "LAST-ACK",
}
AFTER_ITS_ACK = {"FIN-WAIT-1": "FIN-WAIT-2", "CLOSING": "TIME-WAIT", "LAST-ACK": "CLOSED"}
AFTER_PEERS_FIN = {
    "SYN-RECEIVED": "CLOSE-WAIT",
    "ESTABLISHED": "CLOSE-WAIT",
    "FIN-WAIT-1": "CLOSING",
    "FIN-WAIT-2": "TIME-WAIT",
}


@dataclass
class Segment:
    flags: set
    seq: int
    ack: int
    length: int
    window: int = 0
    options: tuple = ()

    @property
    def end(self):
        return self.seq + self.length + bool(self.flags & {"SYN"}) + bool(self.flags & {"FIN"})


def peers(text):
    """The peer's segment that a step sends, if it sends one."""
    found = PEERS.match(text)
    if not found:
        return None
    flags, seq, ack, length, window, options = found.groups()
    return Segment(
        set(flags.split("|")),
        int(seq),
        int(ack),
        int(length),
        int(window),
        tuple((options or "").split()),
    )


def targets(text):
    """The segments that an outcome has."""
    for flags, seq, ack, length, options in TARGETS.findall(text):
        kinds = tuple(int(kind) for kind in options.split(",") if kind.strip())
        yield Segment(
            set(flags.split("|")),
            0 if seq == "zero" else int(seq),
            int(ack),
            int(length),
            options=kinds,
        )


class Past:
    def __init__(self):
        self.state = "CLOSED"
        self.is_orphan, self.has_listener = False, False
        # Whether a RST has met TIME-WAIT (RFC 1337).
        self.is_assassinated = False
        # SND.NXT, SND.UNA and RCV.NXT; the last one is unknown before the peer's SYN.
        self.sent, self.una, self.expects = 0, 0, None
        self.fin_at = None
        # Where the bytes end that the program has written.
        self.written = 1
        self.window, self.window_max, self.window_seq = 0, 0, None
        self.window_seq_max, self.has_older_window = 0, False
        # Whether both have offered to scale windows, and a window that a segment ending at RCV.NXT
        # has opened.
        self.offers, self.is_offered, self.doubtful_window = False, False, 0
        # Ranges received beyond RCV.NXT, and the positions of FINs.
        self.ahead, self.fins = [], set()
        # Steps since the last ACK that answered something unacceptable, and since other events of
        # these names.
        self.ages = {}

    @classmethod
    def of(cls, steps, outcomes):
        past = cls()
        for step, outcome in zip(steps, outcomes):
            past.take(step, outcome)
        return past

    def take(self, step, outcome):
        self.ages = {name: age + 1 for name, age in self.ages.items()}
        segment = peers(step)
        if segment:
            self._hear(segment)
        elif step == "close stream" and outcome.startswith("ok"):
            self.is_orphan, self.ages["left"] = True, 0
        elif step.startswith("listen ") and outcome == "ok":
            self.has_listener = True
        elif step.startswith("send ") and outcome[:1].isdigit():
            self.written += int(outcome.split()[0])
        for said in targets(outcome):
            if segment and said.flags == {"ACK"} and not said.length and said.ack == self.expects:
                self.ages["answered"] = 0
            self._say(said, segment)

    def place(self, segment):
        """The position of a segment's numbers: 'next' begins at RCV.NXT, 'ended' ends there,
        'across' contains it, 'ahead' is in any window and 'beyond' in none."""
        if self.expects is None:
            return "unknown"
        if segment.seq == self.expects:
            return "next"
        if segment.seq > self.expects:
            return "beyond" if segment.seq >= self.expects + BEYOND else "ahead"
        return (
            "ended"
            if segment.end == self.expects
            else "old"
            if segment.end < self.expects
            else "across"
        )

    def acks(self, segment):
        """The meaning of a segment's ACK; an old one is before the largest window and all that
        was ever acknowledged."""
        if "ACK" not in segment.flags:
            return "none"
        if segment.ack > self.sent:
            return "unsent"
        if segment.ack < self.una - min(self.window_max, max(self.una - 1, 0)):
            return "older than all"
        return "new" if segment.ack > self.una else "known"

    def _hear(self, segment):
        place, worth = self.place(segment), self.acks(segment)
        if "SYN" in segment.flags and "wscale" in segment.options:
            self.is_offered = True
        if segment.flags - {"PSH"} == {"FIN", "ACK"}:
            self.fins.add(segment.end)
        if "RST" in segment.flags:
            if (
                segment.seq == self.expects
                or self.state == "SYN-SENT"
                and worth in ("known", "new")
                and segment.ack == self.sent
            ):
                self.is_assassinated = self.is_assassinated or self.state == "TIME-WAIT"
                self._end()
            return
        # A SYN that comes later is challenged, and that is all.
        is_due = (
            self.state == "SYN-SENT"
            if "SYN" in segment.flags
            else place in ("next", "across", "ahead")
        )
        if is_due:
            if worth in ("known", "new"):
                self._hear_ack(segment)
            if place == "ahead" and segment.end > segment.seq:
                self.ahead.append((segment.seq, segment.end))
        elif place == "ended" and "ACK" in segment.flags:
            self.doubtful_window = self._scaled(segment)
            if worth in ("unsent", "older than all"):
                self.ages["refused by its ACK"] = 0

    def _hear_ack(self, segment):
        window, seq = self._scaled(segment), segment.seq
        is_later = self.window_seq is None or segment.ack > self.una or seq > self.window_seq
        if is_later or seq == self.window_seq and (window > self.window or not window):
            self.window, self.window_seq, self.doubtful_window = window, seq, 0
            # RFC 9293 3.10.7.4 (fifth) goes by the number alone.
            self.window_seq_max = max(self.window_seq_max, seq)
            self.has_older_window = seq < self.window_seq_max
            self.window_max = max(self.window_max, window)
        self.una = max(self.una, segment.ack)
        if self.state == "SYN-RECEIVED" and segment.ack == self.sent:
            self.state = "ESTABLISHED"
        if self.fin_at is not None and segment.ack > self.fin_at:
            self.state = AFTER_ITS_ACK.get(self.state, self.state)
            if self.state == "CLOSED":
                self.ages["left"] = 0

    def _scaled(self, segment):
        return segment.window << (
            7 if self.offers and self.is_offered and "SYN" not in segment.flags else 0
        )

    def _say(self, said, answered):
        if "RST" in said.flags:
            # In a handshake a RST answers one segment; later there is nothing left.
            if not answered or self.state not in ("SYN-SENT", "SYN-RECEIVED"):
                self._end()
            return
        if "SYN" in said.flags:
            return self._say_syn(said)
        if self.state == "SYN-SENT":
            self.state, self.expects = "ESTABLISHED", said.ack
        if said.end > self.sent:
            self.sent, self.ages["sent"] = said.end, 0
        if said.ack > (self.expects or 0):
            self.expects = said.ack
            if said.ack in self.fins:
                self.state = AFTER_PEERS_FIN.get(self.state, self.state)
        if "FIN" in said.flags and self.fin_at is None:
            self.fin_at = said.end - 1
            self.state = AFTER_OUR_FIN.get(self.state, self.state)

    def _say_syn(self, said):
        if "ACK" not in said.flags:
            self.state, self.sent = "SYN-SENT", 1
        elif self.state in ("CLOSED", "SYN-SENT", "TIME-WAIT"):
            self.state, self.sent, self.una, self.expects, self.fin_at = (
                "SYN-RECEIVED",
                1,
                0,
                said.ack,
                None,
            )
            self.is_orphan, self.is_assassinated = False, False
            self.written, self.window_seq, self.window_seq_max = 1, None, 0
            self.ahead, self.fins = [], set()
        self.offers = 3 in said.options

    def _end(self):
        if self.state != "CLOSED":
            self.state = "CLOSED"
            self.ages["left"] = 0

    def has(self, fact, segment):
        """Whether a fact that known.toml names is proved, of what came before or of the segment
        that is judged."""
        return FACTS[fact](self, segment)

    def is_within(self, what, steps):
        return self.ages.get(what, steps) < steps


FACTS = {
    "orphan": lambda past, _: past.is_orphan,
    "window used up": lambda past, _: past.una + past.window <= past.sent,
    "window opened by a duplicate": (
        lambda past, _: past.una + past.window <= past.sent < past.una + past.doubtful_window
    ),
    "window of an older segment": lambda past, _: past.has_older_window,
    "timeout": lambda past, _: past.una < past.sent and not past.is_within("sent", TIMEOUT_STEPS),
    "answered a moment ago": lambda past, _: past.is_within("answered", HELD_BACK_STEPS),
    "refused for its ACK a moment ago": lambda past, _: past.is_within(
        "refused by its ACK", HELD_BACK_STEPS
    ),
    "port left a moment ago": (
        lambda past, _: past.is_orphan
        and not past.has_listener
        and past.is_within("left", MOVING_STEPS)
    ),
    "beyond the connection": (
        lambda past, segment: segment.end > past.expects or past.acks(segment) == "unsent"
    ),
    "at the end of what lies ahead": lambda past, segment: segment.seq
    == max((end for _, end in past.ahead), default=None),
    "reset in TIME-WAIT": lambda past, _: past.is_assassinated,
    "sent bytes behind its FIN": lambda past, segment: any(
        end >= segment.end for _, end in past.ahead
    ),
}

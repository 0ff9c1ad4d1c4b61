"""Which differences known.toml explains. The head of that file lists the conditions of an entry."""

import re
import tomllib
from pathlib import Path

from past import Past, peers, targets

ENTRIES = tomllib.loads((Path(__file__).resolve().parent / "known.toml").read_text())["difference"]
KINDS = {"mss": 2, "wscale": 3, "sack": 4}
PATTERNS = ("step", "script", "kernel", "ours")
PROOFS = ("state", "place", "acks", "facts", "window_max", "same_bytes")


def explanation(protocol, steps, before, kernel, ours, entries=ENTRIES):
    """Why the last of the steps may differ: `before` is what both did at those before it. All are
    texts."""
    texts = {"step": steps[-1], "script": "\n".join(steps), "kernel": kernel, "ours": ours}
    past, segment = (
        (Past.of(steps, before), peers(steps[-1])) if protocol == "tcp" else (None, None)
    )
    for entry in entries:
        if (
            is_for(entry, protocol)
            and matches(entry, past, segment, texts)
            and is_proved(entry, past, segment, texts)
        ):
            return entry["why"]
    return None


def is_for(entry, protocol):
    assert set(entry) <= {*PATTERNS, *PROOFS, "why"}, f"known.toml: what is one of {set(entry)}?"
    return ("state" in entry) == (protocol == "tcp")


def is_proved(entry, past, segment, texts):
    if past is None:
        return True
    judged = {"place": past.place(segment), "acks": past.acks(segment)} if segment else {}
    return (
        past.state in entry["state"]
        and all(judged.get(key) in entry[key] for key in ("place", "acks") if key in entry)
        and all(past.has(fact, segment) for fact in entry.get("facts", ()))
        and entry.get("window_max", past.window_max) == past.window_max
        and (not entry.get("same_bytes") or is_same_bytes(past, texts["kernel"], texts["ours"]))
    )


def is_same_bytes(past, kernel, ours):
    """Whether both continue after the data sent so far, without a gap, and up to the same end."""
    ends = []
    for outcome in (kernel, ours):
        at = past.sent
        for said in targets(outcome):
            if (said.flags, said.seq, said.ack) != ({"ACK"}, at, past.expects):
                return False
            at = said.end
        ends.append((outcome.split()[0], at))
    return ends[0] == ends[1] and ends[0][1] > past.sent


def matches(entry, past, segment, texts):
    numbers = numbers_of(past, segment) if past else {}
    return all(
        re.search(filled(entry[key], numbers), texts[key]) for key in PATTERNS if key in entry
    )


def numbers_of(past, segment):
    numbers = {
        "sent": past.sent,
        "expects": past.expects,
        "una": past.una,
        "unsent": past.written - past.sent,
    }
    numbers |= {"room": past.una + past.window - past.sent}
    if past.fins:
        numbers |= {"last_fin": max(past.fins), "before_fin": max(past.fins) - 1}
    if segment:
        numbers |= {
            "ack": segment.ack,
            "end": segment.end,
            "fin": segment.end - 1,
            "after_syn": segment.seq + 1,
        }
        # A size and whatever the peer has offered.
        numbers["offered"] = ", ".join(
            [
                "2",
                *(
                    str(kind)
                    for kind in sorted(KINDS[name] for name in segment.options if name != "mss")
                ),
            ]
        )
    return numbers


def filled(pattern, numbers):
    return re.sub(r"\{([a-z_]+)\}", lambda found: re.escape(str(numbers.get(found[1]))), pattern)

"""Compares our answers with those of another server, section by section; differences with a
recorded reason are counted apart."""

import collections

from argued import explanation
from message import parsed, show
from questions import Source
from servers import Asker

BATCH = 50
KEYS = ["rcode", "aa", "flags", "questions", "answer", "authority", "additional", "edns"]


def differences(ours, theirs):
    """The keys in which they differ. Of truncated answers only that they are."""
    keys = ["aa", "tc", "flags"] if ours["tc"] or theirs["tc"] else KEYS
    found = []
    for key in keys:
        left, right = ours[key], theirs[key]
        if key == "edns" and left and right:
            # The content of a server's own records is not compared; their presence is.
            left, right = (
                {**it, "size": 0, "options": sorted(it["options"])} for it in (left, right)
            )
        if left != right:
            found.append(key)
    return found


def shown(value):
    if isinstance(value, list):
        return (
            "["
            + ", ".join(
                f"{show(name)} {rtype} {ttl} {data!r:.60}" for name, rtype, ttl, data in value
            )
            + "]"
        )
    return repr(value)


def compare(world, targets, files, count, seed, report=print):
    """Sends `count` queries; returns lines for the differences without a reason, and counts of
    those that have one."""
    source, asker = Source(files, seed), Asker(world, targets)
    lines, argued = [], collections.Counter()
    done = 0
    while done < count:
        batch = [source.next() for _ in range(min(BATCH, count - done))]
        answers = asker.ask([question.message(number) for number, question in enumerate(batch)])
        done += len(batch)
        for number, question in enumerate(batch):
            ours = answers["ours"][number]
            for name in targets:
                if name == "ours":
                    continue
                theirs = answers[name][number]
                if ours is None or theirs is None:
                    if ours is not theirs:
                        lines.append(
                            f"{question}: {'ours' if ours is None else name} gives no answer"
                        )
                    continue
                left, right = parsed(ours), parsed(theirs)
                for key in differences(left, right):
                    why = explanation(question, name, key, left, right)
                    if why:
                        argued[f"{name} {key}: {why}"] += 1
                    else:
                        lines.append(
                            f"{question}: {key}\n    ours {shown(left[key])}\n   "
                            f" {name} {shown(right[key])}"
                        )
        if done % 10000 < BATCH:
            report(f"{done} questions, {len(lines)} differences")
    asker.close()
    return lines, argued

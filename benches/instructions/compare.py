"""Compares counts with those that are stored: FIGURES [--record], the lines of scripts/instructions
on standard input. Passes them on, with the difference behind each; fails if one has grown by more
than a hundredth. With `--record` the counts become the stored ones."""

import re
import sys

GROWTH_MAX = 0.01


def read(path):
    """Lines `WHAT COUNT`; `#` begins a comment."""
    rows = (line.split("#")[0].split() for line in open(path))
    return {what: int(count) for what, count in filter(None, rows)}


def main():
    path, is_record = sys.argv[1], sys.argv[2:] == ["--record"]
    stored, counted, grown = read(path), {}, []
    for line in sys.stdin:
        found = re.match(r"(\w+): (\d+) instructions", line)
        if not found:
            sys.exit(f"not a count: {line}")
        what, count = found[1], int(found[2])
        counted[what] = count
        share = count / stored[what] - 1 if what in stored else 0
        print(f"{line.rstrip()}, {share:+.1%}", flush=True)
        if share > GROWTH_MAX:
            grown.append(f"{what}: {count} instructions, {stored[what]} are stored")
    if is_record:
        comments = [line for line in open(path) if line.startswith("#")]
        rows = [f"{what} {count}\n" for what, count in counted.items()]
        open(path, "w").writelines(comments + rows)
    elif grown or stored.keys() - counted.keys():
        missing = [f"{what}: not counted" for what in sorted(stored.keys() - counted.keys())]
        sys.exit("\n".join(grown + missing))


main()

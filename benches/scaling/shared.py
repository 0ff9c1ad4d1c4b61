"""Reads a trace of memory accesses (valgrind --tool=lackey --trace-mem=yes) from standard input,
with the address of the marks as its argument. Prints how many cache lines engines wrote in their
turns, and each that one engine wrote and another one used."""

import collections
import sys

LINE = 64
END = 127


class Uses:
    """Lines that each engine has read or written in its turns."""

    def __init__(self):
        self.turns = collections.Counter()
        self.readers = collections.defaultdict(set)
        self.writers = collections.defaultdict(set)

    def take(self, lines, marks):
        engine = None
        for line in lines:
            kind = line[1:2]
            if kind not in "LSM" or not line.startswith(" "):
                continue
            address, _, size = line[3:].partition(",")
            address, size = int(address, 16), int(size)
            mark = address - marks
            if 0 <= mark <= END:
                engine = mark if mark < END and kind in "SM" else None
                if engine is not None:
                    self.turns[engine] += 1
                continue
            if engine is None:
                continue
            for at in range(address // LINE, (address + size - 1) // LINE + 1):
                if kind != "S":
                    self.readers[at].add(engine)
                if kind != "L":
                    self.writers[at].add(engine)

    def shared(self):
        """Line → (engines that wrote it, others that used it)."""
        for at, writers in sorted(self.writers.items()):
            others = (
                (writers | self.readers[at]) if len(writers) > 1 else self.readers[at] - writers
            )
            if others:
                yield at * LINE, writers, others


def main():
    uses = Uses()
    first = next(line for line in sys.stdin if line.startswith("marks at "))
    uses.take(sys.stdin, int(first.split()[2], 16))
    if len(uses.turns) < 2:
        sys.exit("shared: the trace has no turns of two engines")
    shared = list(uses.shared())
    everyone = sum(1 for readers in uses.readers.values() if len(readers) > 1)
    print(
        f"{len(uses.turns)} engines in {sum(uses.turns.values())} turns wrote"
        f" {len(uses.writers)} cache lines and read {everyone} together: {len(shared)} are written"
        " by one and used by another"
    )
    for address, writers, others in shared[:20]:
        print(f"  {address:#x}: written by {sorted(writers)[:5]}, used by {sorted(others)[:5]}")
    sys.exit(1 if shared else 0)


if __name__ == "__main__":
    main()

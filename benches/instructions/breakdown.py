"""Where the instructions of one round are spent: FEW MANY ROUNDS, two callgrind profiles whose
runs differ by ROUNDS rounds → one line with the counts by part.

An inlined line counts for the file it stands in. The standard library's lines count for the
function they were inlined into, its functions (memcpy and the like) for their callers.
"""

import collections
import re
import sys

PARTS = ("wire", "stack", "engine + channel", "service", "server", "device", "other")
CRATES = {
    "engine": "engine + channel",
    "channel": "engine + channel",
    "mem": "engine + channel",
    "apps": "server",
}


def part_of_file(path):
    if "benches/instructions/src/wire.rs" in path:
        return "device"
    found = re.search(r"crates/(\w+)/src", path)
    if not found:
        return None
    crate = found.group(1)
    return CRATES.get(crate, crate)


def part_of_function(name):
    if "instructions::wire::Wire" in name:
        return "device"
    # The parser of heads is the web server's.
    if "httparse" in name:
        return "server"
    found = re.search(r"slipstack_(wire|stack|engine|channel|mem|service|apps)\b", name)
    if not found:
        return None
    crate = found.group(1)
    return CRATES.get(crate, crate)


class Profile:
    def __init__(self, path):
        self.names = {}
        self.own = collections.Counter()  # (function, part) → instructions
        self.called = collections.Counter()  # (function, part, callee) → inclusive
        self.read(path)

    def name(self, text):
        """Names are given once, then by number: `(12) name`."""
        number, _, name = text.partition(" ")
        if name:
            self.names[number] = name
        return self.names.get(number, number)

    def read(self, path):
        function = callee = file = ""
        is_call = False
        for line in open(path):
            key, mark, value = line.rstrip("\n").partition("=")
            if mark and key in ("fl", "fi", "fe"):
                file = self.name("f" + value)
            elif mark and key == "fn":
                function = self.name("n" + value)
            elif mark and key == "cfn":
                callee = self.name("n" + value)
            elif mark and key in ("cfl", "cfi"):
                self.name("f" + value)
            elif mark and key == "calls":
                is_call = True
            elif re.match(r"[+\-*\d]", line):
                words = line.split()
                cost = int(words[1]) if len(words) > 1 else 0
                part = part_of_file(file) or part_of_function(function)
                if is_call:
                    self.called[function, part, callee] += cost
                else:
                    self.own[function, part] += cost
                is_call = False

    def parts(self):
        total = collections.Counter()
        for (_, part), cost in self.own.items():
            total[part] += cost
        # A library function's cost belongs to the part that called it.
        for (_, part, callee), cost in self.called.items():
            if part and not part_of_function(callee) and (callee, None) in self.own:
                total[part] += cost
                total[None] -= cost
        return total


def main():
    few, many = (Profile(path).parts() for path in sys.argv[1:3])
    rounds = int(sys.argv[3])
    each = {part: (many[part] - few[part]) / rounds for part in PARTS[:-1]}
    each["other"] = (many[None] - few[None]) / rounds
    ours = sum(each[part] for part in PARTS[:-2])
    shares = ", ".join(f"{part} {each[part]:.0f}" for part in PARTS if round(each[part]))
    print(f"{ours:.0f} instructions ({shares})")


main()

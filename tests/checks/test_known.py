"""Differences that known.toml must explain, and others that it must not: in the form that
tests/differential/run prints.

argued.txt has one for each entry of TCP, as they were found; invented.txt has those of
deliberately broken stacks."""

import sys
import unittest
from dataclasses import dataclass, field
from pathlib import Path

sys.dont_write_bytecode = True
FOLDER = Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER.parent / "differential"))

import known  # noqa: E402


@dataclass
class Difference:
    name: str
    steps: list = field(default_factory=list)
    said: dict = field(default_factory=lambda: {"both": [], "kernel": [], "ours": []})

    def explanation(self, entries=known.ENTRIES):
        (kernel,), (ours,) = self.said["kernel"], self.said["ours"]
        assert len(self.said["both"]) == len(self.steps) - 1, self.name
        return known.explanation("tcp", self.steps, self.said["both"], kernel, ours, entries)


def read(file):
    found = []
    for line in (FOLDER / file).read_text().splitlines():
        if not line.startswith(" "):
            found += [Difference(line)] if line else []
        elif line.startswith("      "):
            who, what = line.split(maxsplit=1)
            found[-1].said[who].append(what)
        else:
            found[-1].steps.append(line.strip())
    return found


class Known(unittest.TestCase):
    def test_a_broken_stack_is_not_explained(self):
        differences = read("invented.txt")
        self.assertTrue(differences)
        for difference in differences:
            with self.subTest(difference.name):
                self.assertIsNone(difference.explanation())

    def test_each_entry_of_tcp_explains_what_it_was_written_for(self):
        differences = read("argued.txt")
        for difference in differences:
            with self.subTest(difference.name):
                self.assertIsNotNone(difference.explanation())
        for entry in known.ENTRIES:
            if "state" in entry:
                with self.subTest(entry["why"]):
                    self.assertTrue(
                        any(difference.explanation([entry]) for difference in differences)
                    )

    def test_no_entry_explains_an_argued_answer_with_other_numbers(self):
        for difference in read("argued.txt"):
            for number in ("seq", "ack"):
                for entry in known.ENTRIES:
                    if "state" in entry and f"{number} " in difference.said["ours"][0]:
                        with self.subTest(f"{difference.name}: {number}"):
                            wrong = difference.said["ours"][0].replace(f"{number} ", f"{number} 7")
                            other = Difference(
                                difference.name,
                                difference.steps,
                                {**difference.said, "ours": [wrong]},
                            )
                            self.assertIsNone(other.explanation([entry]))


if __name__ == "__main__":
    unittest.main()

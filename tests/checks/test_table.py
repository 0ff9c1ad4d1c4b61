"""The table of the page of programs, as a whole run and a run of some programs write it."""

import sys
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
FOLDER = Path(__file__).resolve().parent
ROOT = FOLDER.parents[1]
sys.path[:0] = [str(FOLDER.parent / "page"), str(FOLDER.parent / "programs")]

from page import catalogue, table  # noqa: E402

BOOK = ROOT / "docs/book/src/page-of-programs.md"


def row(name, rates=(), busy=0.0, **more):
    modes = zip(("kernel", "inprocess", "instance"), rates)
    runs = {
        mode: [{"checked": "3 MB", "rate": rate, "unit": "calls/s", "busy": busy}]
        for mode, rate in modes
    }
    return {"name": name, "version": "1.2", "runs": runs, "on": "2026-01-02", **more}


class Written(unittest.TestCase):
    def test_a_rate_is_a_multiple_of_the_kernels(self):
        self.assertEqual(
            table.written(row("a", (100.0, 150.0, 50.0))),
            "| a | 1.2 | 3 MB | 100 calls/s | 1.50 × | 0.50 × | 2026-01-02, idle |\n",
        )

    def test_a_busy_machine_is_named(self):
        line = table.written(row("a", (100.0, 150.0, 50.0), busy=0.62))
        self.assertIn("| 2026-01-02, 62% busy |", line)

    def test_a_program_that_cannot_be_run_has_its_reason(self):
        line = table.written(row("a", absent="no package"))
        self.assertEqual(line, "| a | 1.2 |  | not run: no package |  |  | 2026-01-02 |\n")

    def test_rows_of_a_page_are_found_again(self):
        lines = {name: table.written(row(name, (1.0, 1.0, 1.0))) for name in ("a", "b, c")}
        self.assertEqual(table.rows_of(table.page(lines.values())), lines)


class Book(unittest.TestCase):
    def test_its_page_is_what_a_run_writes(self):
        text = BOOK.read_text()
        self.assertTrue(text.startswith(table.HEAD))
        self.assertEqual(text.count(table.COLUMNS), 1)
        names = [entry.name for entry in catalogue.load(ROOT / "tests/page/entries")]
        there = list(table.rows_of(text))
        self.assertEqual([name for name in names if name in there], there)
        self.assertEqual([name for name in names if name not in there], [])

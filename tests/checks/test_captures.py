"""Findings that `make captures` must report, and captures that it must reject."""

import json
import sys
import tempfile
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "programs"))

from harness import comparison, expert, registry  # noqa: E402

RESET = "warning: TCP: Connection reset (RST)"
EXPLAINED = f"""
[[difference]]
what = "{RESET}"
tests = ["nginx."]
most = 5
why = "invented"

[[incomplete]]
tests = ["iperf3."]
most = 1
why = "invented"
"""
SERVER, CLIENT = 7000, 40000
# Port, flags, sequence number, acknowledgement number, length: the client closes first, and the
# server sends 100 bytes before it closes.
ENDS = (
    (CLIENT, 0x11, 500, 1, 0),
    (SERVER, 0x18, 1, 501, 100),
    (SERVER, 0x11, 101, 501, 0),
    (CLIENT, 0x10, 501, 102, 0),
)


def late(*more, ends=ENDS):
    rows = [(3, port, hex(flags), *numbers) for port, flags, *numbers in (*ends, *more)]
    return expert.resets_of_the_closed(
        "\n".join("\t".join(str(word) for word in row) for row in rows)
    )


class Captures(unittest.TestCase):
    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory()
        self.addCleanup(self.temporary.cleanup)
        self.folder = Path(self.temporary.name) / "captures"
        self.explained = Path(self.temporary.name) / "captures.toml"
        self.explained.write_text(EXPLAINED)
        comparison.clear(self.folder)

    def saw(self, name, mode, findings, is_full=False, again=None):
        folder = self.folder if again is None else comparison.further(self.folder, again)
        folder.mkdir(exist_ok=True)
        (folder / f"{name}.{mode}.json").write_text(
            json.dumps({"is_full": is_full, "findings": findings})
        )

    def compared(self, recorded=(), of_kernel=()):
        return comparison.Comparison(self.folder, self.explained, recorded, set(of_kernel))

    def test_a_run_that_compared_nothing_fails(self):
        self.assertTrue(self.compared().findings)
        self.saw("a.b", "kernel", {})
        self.assertTrue(self.compared().findings)

    def test_what_the_kernel_shows_too_is_no_finding(self):
        self.saw("a.b", "kernel", {RESET: 2})
        self.saw("a.b", "instance", {RESET: 3})
        self.assertEqual(self.compared(of_kernel=["a.b"]).findings, [])

    def test_one_reset_of_the_kernel_does_not_excuse_a_hundred(self):
        self.saw("a.b", "kernel", {RESET: 1})
        self.saw("a.b", "instance", {RESET: 100})
        self.assertEqual(len(self.compared(of_kernel=["a.b"]).findings), 1)

    def test_what_one_run_of_several_shows_is_told_and_no_finding_unless_it_is_an_error(self):
        error = "error: TCP: New fragment overlaps old data (retransmission?)"
        self.saw("a.b", "kernel", {})
        self.saw("a.b", "instance", {RESET: 9, error: 1})
        found = self.compared(of_kernel=["a.b"])
        self.assertEqual((len(found.findings), found.differing), (2, [("a.b", "instance")]))
        for again in range(3):
            self.saw("a.b", "kernel", {}, again=again)
            self.saw("a.b", "instance", {}, again=again)
        found = self.compared(of_kernel=["a.b"])
        self.assertEqual((len(found.findings), len(found.once_lines)), (1, 1))
        self.assertIn(error, found.findings[0])
        self.saw("a.b", "instance", {RESET: 1}, again=2)
        self.assertEqual(len(self.compared(of_kernel=["a.b"]).findings), 2, "two of four runs")

    def test_what_the_kernel_shows_in_any_run_is_its_like(self):
        self.saw("a.b", "kernel", {})
        self.saw("a.b", "instance", {RESET: 9})
        self.saw("a.b", "kernel", {RESET: 4}, again=0)
        self.saw("a.b", "instance", {RESET: 9}, again=0)
        self.assertEqual(self.compared(of_kernel=["a.b"]).findings, [])

    def test_what_comes_late_for_the_end_that_closed_last_is_reset_by_number(self):
        self.assertEqual(late((SERVER, 0x04, 102, 0, 0)), 1)
        self.assertEqual(
            late((CLIENT, 0x10, 501, 101, 0), (SERVER, 0x04, 101, 0, 0), (SERVER, 0x04, 102, 0, 0)),
            2,
        )
        together = (
            (CLIENT, 0x11, 500, 1, 0),
            (SERVER, 0x10, 1, 501, 0),
            (SERVER, 0x11, 1, 501, 0),
            (CLIENT, 0x10, 501, 2, 0),
        )
        self.assertEqual(late((SERVER, 0x04, 2, 0, 0), ends=together), 1)

    def test_other_resets_are_not_taken_for_late(self):
        self.assertEqual(
            late((SERVER, 0x14, 102, 501, 0)), 0, "it acknowledges: who is closed has nothing to"
        )
        self.assertEqual(late((SERVER, 0x04, 60, 0, 0)), 0, "nobody acknowledged that")
        self.assertEqual(
            late((CLIENT, 0x04, 501, 0, 0)), 0, "who ends first has TIME-WAIT, which resets nothing"
        )
        for missing in range(len(ENDS)):
            if missing != 1:
                ends = ENDS[:missing] + ENDS[missing + 1 :]
                self.assertEqual(
                    late((SERVER, 0x04, 102, 0, 0), ends=ends), 0, f"without {ENDS[missing]}"
                )
        crossed = (
            (CLIENT, 0x11, 500, 101, 0),
            (SERVER, 0x11, 101, 500, 0),
            (SERVER, 0x10, 102, 501, 0),
            (CLIENT, 0x10, 501, 102, 0),
        )
        self.assertEqual(
            late((SERVER, 0x04, 102, 0, 0), ends=crossed),
            0,
            "both ended at once: both have TIME-WAIT",
        )

    def test_what_is_explained_is_named_and_only_as_often_as_it_may_be(self):
        self.saw("nginx.b", "kernel", {})
        self.saw("nginx.b", "inprocess", {RESET: 5})
        self.saw("nginx.b", "instance", {RESET: 6})
        found = self.compared(of_kernel=["nginx.b"])
        self.assertEqual((len(found.explained_lines), len(found.findings)), (1, 1))

    def test_a_capture_without_all_frames_or_without_the_kernels_fails_unless_it_is_named(self):
        for name in ("a.b", "iperf3.c", "iperf3.d"):
            self.saw(name, "kernel", {})
            self.saw(name, "instance", None)
        self.saw("e.f", "instance", {})
        self.saw("g.h", "kernel", {})
        self.saw("g.h", "instance", {})
        found = self.compared(of_kernel=["a.b", "e.f", "g.h", "iperf3.c", "iperf3.d"])
        self.assertEqual((found.compared, len(found.incomplete), len(found.findings)), (1, 4, 3))

    def test_a_recorded_test_whose_capture_is_missing_is_incomplete(self):
        self.saw("a.b", "kernel", {})
        self.assertEqual(
            self.compared([("a.b", "instance")], ["a.b"]).incomplete, ["a.b (instance)"]
        )

    def test_what_a_former_run_left_is_nobodys_baseline(self):
        self.saw("a.b", "kernel", {RESET: 50})
        comparison.clear(self.folder)
        self.assertEqual(list(self.folder.iterdir()), [])

    def test_an_entry_that_names_no_tests_is_of_all(self):
        self.assertTrue(comparison.is_named("a.b", {"what": RESET}))
        self.assertFalse(comparison.is_named("a.b", {"what": RESET, "tests": ["c."]}))

    def test_each_name_in_captures_toml_begins_the_name_of_a_test(self):
        programs = Path(comparison.__file__).resolve().parents[1]
        names = [test.name for test in registry.load(programs)]
        known = comparison.Explained(programs / "captures.toml")
        for entry in (*known.differences, *known.incomplete):
            for beginning in entry.get("tests", []):
                with self.subTest(beginning):
                    self.assertTrue(beginning)
                    self.assertTrue(any(name.startswith(beginning) for name in names))


if __name__ == "__main__":
    unittest.main()

"""What `make captures` must see, and what it must not pass."""

import json
import sys
import tempfile
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "programs"))

from harness import comparison  # noqa: E402

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


class Captures(unittest.TestCase):
    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory()
        self.addCleanup(self.temporary.cleanup)
        self.folder = Path(self.temporary.name) / "captures"
        self.explained = Path(self.temporary.name) / "captures.toml"
        self.explained.write_text(EXPLAINED)
        comparison.clear(self.folder)

    def saw(self, name, mode, findings, is_full=False):
        (self.folder / f"{name}.{mode}.json").write_text(json.dumps({"is_full": is_full, "findings": findings}))

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
        self.assertEqual(self.compared([("a.b", "instance")], ["a.b"]).incomplete, ["a.b (instance)"])

    def test_what_a_former_run_left_is_nobodys_baseline(self):
        self.saw("a.b", "kernel", {RESET: 50})
        comparison.clear(self.folder)
        self.assertEqual(list(self.folder.iterdir()), [])

    def test_each_entry_of_captures_toml_names_its_tests(self):
        known = comparison.Explained(Path(comparison.__file__).resolve().parents[1] / "captures.toml")
        for entry in (*known.differences, *known.incomplete):
            self.assertTrue(entry["tests"] and all(entry["tests"]), entry)


if __name__ == "__main__":
    unittest.main()

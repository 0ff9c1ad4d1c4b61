"""What `scripts/reloads` complains about."""

import sys
import unittest
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path

sys.dont_write_bytecode = True
SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "reloads"
loader = SourceFileLoader("reloads", str(SCRIPT))
reloads = module_from_spec(spec_from_loader("reloads", loader))
loader.exec_module(reloads)


def case(times=100, failed=0, slowest=40, fin=1600, rst=0):
    return {
        "times": times,
        "wanted": 100,
        "failures": {"reset": failed},
        "slowest": slowest,
        "parts": (slowest, 1, 1),
        "ends": {"idle EOF": fin, "idle ECONNRESET": rst},
    }


class Judged(unittest.TestCase):
    def complains(self, found, known=case(), about=""):
        sentences = reloads.unfinished(found) + reloads.judge(found, known)
        self.assertEqual(len(sentences), bool(about), sentences)
        self.assertIn(about, "".join(sentences))

    def test_a_case_as_on_the_kernel_is_good(self):
        self.complains(case())
        self.complains(case(failed=2, slowest=150), case(failed=2))

    def test_a_case_with_too_few_reloads_fails_on_every_place(self):
        self.complains(case(times=99), about="99 of 100")
        self.assertEqual(len(reloads.unfinished(case(times=0))), 1)
        self.assertEqual(reloads.unfinished({"broken": "it ended"}), ["it ended"])

    def test_failures_and_slow_requests_are_compared(self):
        self.complains(case(failed=1), about="1 requests failed, 0 on the kernel")
        self.complains(case(slowest=151), about="took 151 ms, 150 ms are allowed")
        self.complains(case(slowest=400), case(slowest=200))

    def test_idle_connections_are_reset_as_often_as_on_the_kernel(self):
        self.complains(case(rst=1), about="1 of 1601 idle connections were reset, 0 of 1600")
        self.complains(case(fin=750, rst=60), case(fin=1500, rst=100))
        self.complains(case(fin=700, rst=100), case(fin=1500, rst=100), "100 of 800")
        self.complains(case(fin=0), about="no idle connection ended")

    def test_without_the_kernel_only_requests_are_judged(self):
        self.complains(case(rst=5), None)
        self.complains(case(rst=5), {"broken": "it ended"})
        self.complains(case(failed=1), None, "1 requests failed")


if __name__ == "__main__":
    unittest.main()

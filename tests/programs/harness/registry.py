"""Which tests there are."""

import importlib
from dataclasses import dataclass
from pathlib import Path
from typing import Callable

MODES = ("kernel", "inprocess", "instance")
TESTS = []


class Skip(Exception):
    """Raised by a test that cannot run here; the text is the reason."""


@dataclass(frozen=True)
class Test:
    name: str
    body: Callable
    modes: tuple
    is_serial: bool
    timeout_s: float
    device: str


def test(body=None, *, modes=MODES, serial=False, timeout=60, device="veth"):
    """Registers a test. `serial`: measures time or CPU, runs alone. `device`: "veth" puts a pair
    between the namespaces of stack and peer, "tap" leaves the device to Slipstack, "none" makes
    none.
    """

    def register(function):
        name = (
            f"{Path(function.__code__.co_filename).stem.removeprefix('test_')}.{function.__name__}"
        )
        TESTS.append(Test(name, function, tuple(modes), serial, timeout, device))
        return function

    return register(body) if body else register


def load(folder):
    """Loads the files of `folder`, which is on the path: one that another one imports is loaded
    once."""
    for file in sorted(Path(folder).glob("test_*.py")):
        importlib.import_module(file.stem)
    return TESTS

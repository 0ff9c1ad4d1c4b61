"""The programs on the page."""

import importlib.util
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Callable

ENTRIES = []


@dataclass(frozen=True)
class Entry:
    name: str
    body: Callable
    packages: tuple
    timeout_s: float
    # (a command that prints its version, a file without which it is not installed)
    own: tuple = ()
    # Why it cannot be run; such a program is only in the table.
    absent: str = ""

    def version(self):
        """The version of the first package without the distribution's part; None if it is not
        installed."""
        if self.own:
            return own_version(*self.own)
        if not self.packages:
            return ""
        version = package_version(self.packages[0])
        return version and version.rpartition(":")[2].partition("-")[0].partition("+")[0]

    def is_installed(self):
        """Whether all of its packages are, and what it has beside them."""
        return self.version() is not None and all(map(package_version, self.packages))


@dataclass
class Outcome:
    """`checked`: what was compared. `rate`: operations a second of a client on the kernel, if one
    was measured."""

    checked: str
    rate: float = 0.0
    unit: str = ""


def package_version(name):
    """The version of a Debian package; None if it is not installed."""
    words = ["dpkg-query", "-W", "-f", "${db:Status-Status} ${Version}", name]
    said = subprocess.run(words, capture_output=True, text=True).stdout
    status, _, version = said.partition(" ")
    return version if status == "installed" else None


def own_version(command, file):
    """The version of a program that is no package of this system."""
    if not file.exists():
        return None
    said = subprocess.run(command, capture_output=True, text=True)
    found = re.search(r"\d+(\.\d+)+", said.stdout + said.stderr)
    return found[0] if found else ""


def entry(name, *, packages, timeout=90, own=()):
    """Registers a program. Its function starts it with `world.stack`, compares data in both
    directions, and returns an Outcome; what it raises is the reason in the table."""

    def register(function):
        ENTRIES.append(Entry(name, function, tuple(packages.split()), timeout, own))
        return function

    return register


def absent(name, reason):
    """Registers a program that cannot be run, with the reason for its row."""
    ENTRIES.append(Entry(name, None, (), 0, absent=reason))


def load(folder):
    for file in sorted(Path(folder).glob("*.py")):
        spec = importlib.util.spec_from_file_location(f"entry_{file.stem}", file)
        spec.loader.exec_module(importlib.util.module_from_spec(spec))
    return ENTRIES

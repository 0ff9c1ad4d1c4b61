"""A started program, its output, and what it uses."""

import os
import signal
import subprocess
import time
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")


class Process:
    def __init__(self, words, folder, *, env=None, cwd=None, stdin=subprocess.DEVNULL, limits=None):
        self.words = words
        number = len(list(folder.glob("*.out")))
        stem = (
            folder / f"{number:02}-{Path(words[-1] if words[-2:-1] == ['--'] else words[0]).name}"
        )
        self.out = stem.with_suffix(".out")
        self.err = stem.with_suffix(".err")
        with open(self.out, "wb") as out, open(self.err, "wb") as err:
            self.child = subprocess.Popen(
                words, stdin=stdin, stdout=out, stderr=err, env=env, cwd=cwd, start_new_session=True
            )
        self.pid = self.child.pid

    def output(self):
        return self.out.read_text(errors="replace")

    def words_after(self, first, seconds=10):
        """Waits for the line that begins with this word, to its end, because `python3 -u` writes
        it in pieces. Returns its other words."""

        def found():
            lines = self.output().split("\n")[:-1]
            return [line.split() for line in lines if line.split()[:1] == [first]]

        return until(found, seconds, f"a line with {first!r}")[0][1:]

    def errors(self):
        return self.err.read_text(errors="replace")

    def is_running(self):
        return self.child.poll() is None

    def signal(self, number):
        self.child.send_signal(number)

    def wait(self, seconds=30):
        try:
            return self.child.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(
                f"{self.words} still runs after {seconds} s\n{self.tail()}"
            ) from None

    def finish(self, seconds=30):
        """Waits for success and returns the output."""
        code = self.wait(seconds)
        assert code == 0, f"{' '.join(self.words)} ended with {code}\n{self.tail()}"
        return self.output()

    def stop(self, seconds=10):
        """Sends SIGTERM and waits; returns the exit code."""
        if self.is_running():
            self.signal(signal.SIGTERM)
        return self.wait(seconds)

    def kill(self):
        if self.is_running():
            self.child.kill()
        return self.child.wait()

    def tail(self):
        text = f"--- output\n{self.output()[-1500:]}\n--- errors\n{self.errors()[-3000:]}"
        return text

    def children(self):
        return children(self.pid)

    def cpu_seconds(self):
        return sum(cpu_seconds(pid) for pid in [self.pid, *descendants(self.pid)])


def children(pid):
    try:
        tasks = os.listdir(f"/proc/{pid}/task")
    except FileNotFoundError:
        return []
    found = []
    for task in tasks:
        try:
            with open(f"/proc/{pid}/task/{task}/children") as file:
                found += [int(child) for child in file.read().split()]
        except FileNotFoundError:
            pass
    return found


def descendants(pid):
    found = []
    for child in children(pid):
        found += [child, *descendants(child)]
    return found


def cpu_seconds(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    return (int(fields[11]) + int(fields[12])) / TICKS


def kept_waiting_seconds(pid):
    """How long its threads were ready to run while the machine was busy with something else."""
    total = 0
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/schedstat") as file:
                total += int(file.read().split()[1])
    except (FileNotFoundError, ProcessLookupError):
        pass
    return total / 1e9


def rss_kib(pid):
    with open(f"/proc/{pid}/status") as file:
        for line in file:
            if line.startswith("VmRSS:"):
                return int(line.split()[1])
    return 0


def until(condition, seconds, what):
    """Waits until the condition is true (its value is returned); fails naming `what`."""
    end = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < end, f"not within {seconds} s: {what}"
        time.sleep(0.01)

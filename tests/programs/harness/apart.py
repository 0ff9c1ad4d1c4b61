"""Runs a test in a process of its own, with a time limit, and collects what came of it."""

import os
import signal
import sys
import tempfile
import time
import traceback

from . import expert, net
from .registry import Skip
from .world import World

SKIPPED = 77
# For a test that took too long to clean up.
CLEANING_S = 20


class Apart:
    """A test that runs in a forked process, which has all modules already: an interpreter for each
    of a thousand tests would take minutes. The process that forks must have no other threads."""

    def __init__(self, test, mode, options):
        self.test, self.mode = test, mode
        self.started = time.monotonic()
        self.limit_s = test.timeout_s + (expert.READING_S if options.captures else 0)
        self.end = self.started + self.limit_s
        self.is_late = False
        self.output = tempfile.TemporaryFile()
        sys.stdout.flush()
        self.pid = os.fork()
        if self.pid == 0:
            become(self.output.fileno(), test, mode, options)

    def outcome(self):
        """None while it runs. It is told to clean up when its time is over, and then ended."""
        if self.end < time.monotonic():
            os.kill(self.pid, signal.SIGKILL if self.is_late else signal.SIGTERM)
            self.is_late, self.end = True, time.monotonic() + CLEANING_S
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        if pid == 0:
            return None
        remove_namespaces(pid)
        self.output.seek(0)
        text = self.output.read().decode(errors="replace")
        self.output.close()
        if self.is_late:
            text += f"\nno end within {self.limit_s} s"
        code = os.waitstatus_to_exitcode(status)
        return {
            "test": self.test,
            "name": self.test.name,
            "mode": self.mode,
            "outcome": {0: "passed", SKIPPED: "skipped"}.get(code, "failed"),
            "text": text.strip(),
            "seconds": time.monotonic() - self.started,
        }


def run_apart(test, mode, options):
    """Runs one test and waits for its outcome."""
    return next(run_many([(test, mode)], 1, options))


def run_many(entries, jobs, options):
    """Yields the outcomes as they come; `jobs` tests run at a time."""
    waiting, running = list(reversed(entries)), []
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                running.append(Apart(*waiting.pop(), options))
            for apart in list(running):
                outcome = apart.outcome()
                if outcome:
                    running.remove(apart)
                    yield outcome
            time.sleep(0.01)
    finally:
        # Of an interrupted run: each cleans up.
        for apart in running:
            apart.end = apart.end if apart.is_late else 0
        while running:
            running = [apart for apart in running if not apart.outcome()]
            time.sleep(0.01)


def become(output, test, mode, options):
    """Turns this forked process into that of the test; never returns."""
    code = 1
    try:
        os.setsid()
        for stream in (1, 2):
            os.dup2(output, stream)
        code = run(test, mode, options)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def run(test, mode, options):
    """Runs the test here; returns the exit code."""
    keep = options.keep

    def on_term(number, frame):
        raise AssertionError("took too long")

    signal.signal(signal.SIGTERM, on_term)
    world = World(mode, test.device)
    code = 1
    try:
        recorded = options.captures and is_recorded(test)
        recording = expert.Recording(world) if recorded else None
        test.body(world)
        if recording:
            recording.end()
            expert.write(options.captures, world.mode, test.name, recording)
            if keep:
                recording.keep(options.captures, f"{test.name}.{world.mode}")
        left = world.finish()
        assert not left, "left behind: " + "; ".join(left)
        code = 0
    except Skip as reason:
        print(reason)
        code = SKIPPED
    except BaseException:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        traceback.print_exc(limit=-6)
        show(world)
        if keep:
            print(f"kept: {world.folder}")
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if code == 1 and keep:
            for namespace in world.namespaces:
                namespace.remove()
        else:
            world.remove()
    return code


def is_recorded(test):
    """A TAP is made by the program under test: there is nothing to listen on before, and its frames
    have no checksums."""
    return test.device == "veth"


def show(world):
    for process in world.processes:
        errors = process.errors().strip()
        if errors:
            print(f"[{' '.join(process.words[2:])[-160:]}]\n{errors[-1200:]}")


def remove_namespaces(pid):
    """Whatever a test that died has left."""
    for suffix in ("s", "c", "d"):
        if os.path.exists(f"/run/netns/ss-{pid}-{suffix}"):
            namespace = net.Namespace.__new__(net.Namespace)
            namespace.name, namespace.path = f"ss-{pid}-{suffix}", f"/run/netns/ss-{pid}-{suffix}"
            namespace.remove()

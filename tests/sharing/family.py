"""A family of processes that share sockets, on one stack, and its peer."""

import os
import select
import signal
import time

from harness.world import World

# Numbers of descriptors that members use.
PEER, FIRST = "P", "A"
ANSWER_S = 3
# A call that takes longer says so.
HANGS = "hangs"


class Member:
    """A process that makes the calls it is asked for."""

    def __init__(self, folder, name):
        self.name = name
        self.rest = b""
        paths = [folder / f"{name}.{end}" for end in ("in", "out")]
        for path in paths:
            os.mkfifo(path, 0o600)
        self.requests, self.answers = (os.open(path, os.O_RDWR) for path in paths)

    def ask(self, line, seconds=ANSWER_S):
        os.write(self.requests, f"{line}\n".encode())
        until = time.monotonic() + seconds
        while b"\n" not in self.rest:
            left = max(until - time.monotonic(), 0)
            if not select.select([self.answers], [], [], left)[0]:
                return HANGS
            self.rest += os.read(self.answers, 65536)
        line, self.rest = self.rest.split(b"\n", 1)
        return line.decode(errors="replace").strip()

    def is_there(self):
        return self.ask("flags 0") != HANGS

    def end(self):
        os.write(self.requests, b"exit\n")

    def close(self):
        os.close(self.requests)
        os.close(self.answers)


class Family:
    """`pause` seconds pass after each call, in which both stacks do what follows from it."""

    def __init__(self, mode, member, pause):
        self.world = World(mode)
        self.member, self.pause = member, pause
        self.members = {}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for member in self.members.values():
            member.end()
        left = self.world.finish()
        for member in self.members.values():
            member.close()
        for pid in (pid for space in self.world.namespaces for pid in space.pids()):
            os.kill(pid, signal.SIGKILL)
        self.world.remove()
        if left:
            raise RuntimeError(f"left behind: {left}")

    def play(self, script):
        """The answers to the lines of a script."""
        for name, start in ((PEER, self.world.peer), (FIRST, self.world.stack)):
            self.members[name] = Member(self.world.folder, name)
            start(self.member, self.world.folder, name)
            if not self.members[name].is_there():
                raise RuntimeError(f"{name} has not begun")
        return [self.step(name, line) for name, line in script]

    def step(self, name, line):
        member, verb = self.members.get(name), line.split()[0]
        if member is None:
            return "is not there"
        if verb == "exit":
            member.end()
            said = "ends"
        elif verb in ("fork", "spawn"):
            child = self.members[line.split()[1]] = Member(self.world.folder, line.split()[1])
            said = member.ask(line)
            said += "" if child.is_there() else ", silent"
        else:
            said = member.ask(line.replace("ADDRESS", self.world.address))
            if verb == "exec" and not member.is_there():
                said += ", silent"
        time.sleep(self.pause)
        return said

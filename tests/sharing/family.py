"""A family of processes and threads that share sockets, on one stack, and its peer."""

import contextlib
import os
import select
import signal
import time
from pathlib import Path

from harness.world import World

# Numbers of descriptors that members use.
PEER, FIRST = "P", "A"
ANSWER_S = 3
# A call that takes longer says so.
HANGS = "hangs"
# A call that was begun and takes longer, and a line for a thread that is in one.
RESULT_S, WAITS, BUSY = 0.15, "waits still", "is busy"
CANCELLED, GONE, NOTHING = "cancelled", "is not there", "has begun nothing"


class Member:
    """A thread that makes the calls it is asked for: a process's first, or another one."""

    def __init__(self, folder, name, process):
        self.name, self.process = name, process
        self.rest = b""
        self.has_begun = False
        paths = [folder / f"{name}.{end}" for end in ("in", "out")]
        for path in paths:
            os.mkfifo(path, 0o600)
        self.requests, self.answers = (os.open(path, os.O_RDWR) for path in paths)

    def ask(self, line, seconds=ANSWER_S):
        self.begin(line)
        return self.result(seconds) or HANGS

    def begin(self, line):
        os.write(self.requests, f"{line}\n".encode())
        self.has_begun = True

    def result(self, seconds):
        """What the call that was begun says. `None`: nothing so far."""
        until = time.monotonic() + seconds
        while b"\n" not in self.rest:
            left = max(until - time.monotonic(), 0)
            if not select.select([self.answers], [], [], left)[0]:
                return None
            self.rest += os.read(self.answers, 65536)
        self.has_begun = False
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
        # Those that live, and all that there have been.
        self.members, self.all = {}, []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for member in self.members.values():
            member.end()
        self.end_waiting()
        left = self.world.finish()
        for member in self.all:
            member.close()
        for pid in (pid for space in self.world.namespaces for pid in space.pids()):
            os.kill(pid, signal.SIGKILL)
        self.world.remove()
        if left:
            raise RuntimeError(f"left behind: {left}")

    def end_waiting(self):
        """Ends the processes if every thread of one is in a call."""
        reads = {member.process for member in self.members.values() if not member.has_begun}
        if all(member.process in reads for member in self.members.values()):
            return
        for pid in (pid for space in self.world.namespaces for pid in space.pids()):
            with contextlib.suppress(OSError):
                words = Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
                if words[0] == str(self.member):
                    os.kill(pid, signal.SIGTERM)

    def play(self, script):
        """The answers to the lines of a script."""
        for name, start in ((PEER, self.world.peer), (FIRST, self.world.stack)):
            member = self.add(name, name)
            start(self.member, self.world.folder, name)
            if not member.is_there():
                raise RuntimeError(f"{name} has not begun")
        return [self.step(name, line) for name, line in script]

    def add(self, name, process):
        member = self.members[name] = Member(self.world.folder, name, process)
        self.all.append(member)
        return member

    def step(self, name, line):
        """The answer to a line. After one that begins with `at-once` there is no pause."""
        first, _, rest = line.partition(" ")
        member = self.members.get(name)
        said = GONE if member is None else self.said(member, rest if first == "at-once" else line)
        if first != "at-once":
            time.sleep(self.pause)
        return said

    def said(self, member, line):
        verb, _, rest = line.partition(" ")
        if verb == "result":
            said = member.result(RESULT_S) if member.has_begun else NOTHING
            if said == CANCELLED:
                del self.members[member.name]
            return said or WAITS
        if verb == "answer":
            # Of a call that ends soon.
            return (member.result(ANSWER_S) or HANGS) if member.has_begun else NOTHING
        if member.has_begun and member.result(0) is None:
            return BUSY
        if verb == "begin":
            member.begin(self.complete(rest))
            return "begins"
        if verb == "exit":
            member.end()
            self.end(self.threads(member))
            return "ends"
        return self.asked(member, verb, line)

    def asked(self, member, verb, line):
        if verb in ("fork", "spawn", "thread"):
            name = line.split()[1]
            new = self.add(name, member.process if verb == "thread" else name)
            said = member.ask(line)
            return said + ("" if new.is_there() else ", silent")
        said = member.ask(self.complete(line))
        if verb == "leave":
            self.end([member])
        if verb == "exec":
            self.end(other for other in self.threads(member) if other is not member)
            said += "" if member.is_there() else ", silent"
        return said

    def complete(self, line):
        return line.replace("ADDRESS", self.world.address).replace("PEER", self.world.peer_address)

    def threads(self, member):
        return [other for other in self.members.values() if other.process == member.process]

    def end(self, members):
        for member in members:
            del self.members[member.name]

"""A program that polls and one that sleeps, on one instance: neither pays for the other."""

from harness import test
from harness.process import until

BUSY, ASLEEP = 7420, 7421
COUNT = 300


class Server:
    def __init__(self, world, how, port):
        self.process = world.stack(*world.program("busy_beside.py"), how, port)
        world.wait_port(port, process=self.process)
        self.sock = world.connect(port)
        self.lines = self.sock.makefile("rb")

    def ask(self, line):
        self.sock.sendall(line)
        return self.lines.readline()

    def counts(self):
        """Returns the voluntary switches of its process, and its waits."""
        return tuple(map(int, self.ask(b"count\n").split()))

    def exchange(self, name):
        for number in range(COUNT):
            line = b"%s %d\n" % (name, number)
            assert self.ask(line) == line

    def grown(self, work):
        """Returns by how much the counts have grown after some work."""
        before = self.counts()
        work()
        return tuple(now - then for now, then in zip(self.counts(), before))

def reads(process):
    """Returns the calls so far by which a process has read files, eventfds among them."""
    with open(f"/proc/{process.pid}/io") as file:
        (count,) = [it.split()[1] for it in file if it.startswith("syscr")]
    return int(count)


@test(modes=("instance",))
def an_instance_reads_no_doorbell(world):
    asleep = Server(world, "asleep", ASLEEP)
    asleep.exchange(b"warm")
    before = reads(world.instance)
    asleep.exchange(b"asleep")
    # Now and then the reception has something.
    assert reads(world.instance) - before < COUNT / 10


@test(modes=("kernel", "instance"))
def a_program_that_polls_and_one_that_sleeps_share_an_instance(world):
    asleep = Server(world, "asleep", ASLEEP)
    alone, _ = asleep.grown(lambda: asleep.exchange(b"alone"))
    busy = Server(world, "busy", BUSY)
    until(lambda: busy.grown(lambda: None)[1] > 100, 10, "it polls")

    def both():
        asleep.exchange(b"asleep")
        busy.exchange(b"busy")

    # The one that sleeps is woken for its own lines, as often as alone, and not for the other's.
    beside, waits = asleep.grown(lambda: busy.grown(both))
    assert beside <= alone * 1.5 + 50, (alone, beside)
    assert waits <= COUNT + 50, waits
    idle, waits = asleep.grown(lambda: busy.exchange(b"idle"))
    assert idle <= 20 and waits <= 5, (idle, waits)
    # The one that polls does not sleep, whether the other one has something to do or not.
    slept, polled = busy.grown(lambda: asleep.exchange(b"again"))
    assert polled > COUNT, polled
    assert slept <= polled / 10, (slept, polled)

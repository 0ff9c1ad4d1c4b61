"""Which engine gets a new flow: rules beside the even hash."""

import shutil
import subprocess
from collections import Counter

from harness import Skip, test
from test_engines import check_one_thread_per_connection, engines, thread_of
from harness.process import until


def served(world, threads, *options):
    """Which thread has each of many connections, one after the other."""
    server = world.stack(
        *world.program("engines.py"),
        "own",
        7000,
        threads,
        options=("--thread-engines", str(threads), *options)
    )
    world.wait_port(7000, process=server)
    until(lambda: engines(world, server) == threads, 10, "every thread has its engine")
    found = Counter()
    for _ in range(200):
        with world.connect(7000) as sock:
            found[thread_of(sock)] += 1
    assert sum(check_one_thread_per_connection(world, 16).values()) == 16
    return sorted(found.values(), reverse=True)


@test(modes=("inprocess",))
def with_the_rule_port_each_port_has_one_engine(world):
    first, *_ = served(world, 4, "--spread", "port")
    assert first > 180, first
    assert "a TCP port has one engine" in world.admin("status").output()


@test(modes=("inprocess",))
def engines_have_their_shares(world):
    counts = served(world, 3, "--spread", "shares", "--spread-shares", "8,1,1")
    assert counts[0] > 120 and sum(counts) == 200, counts
    assert "in the shares [8, 1, 1]" in world.admin("status").output()


@test(modes=("inprocess",))
def engines_take_turns(world):
    assert served(world, 4, "--spread", "turns") == [50] * 4
    assert "by turns" in world.admin("status").output()


@test(modes=("inprocess",))
def a_table_of_networks_selects_the_engine(world):
    table = "10.0.0.0/8=1,0.0.0.0/0=0,fd00::/8=2"
    assert served(world, 3, "--spread", "table", "--spread-table", table) == [200]
    assert "by a table of 3 networks" in world.admin("status").output()


# The engine of a flow is the last byte of its source port; the map counts the look-ups.
PROGRAM = """
#define SEC(name) __attribute__((section(name), used))
struct {
    int (*type)[1]; /* BPF_MAP_TYPE_HASH */
    unsigned *key;
    unsigned *value;
    int (*max_entries)[8];
} asked SEC(".maps");
static void *(*find)(void *, const void *) = (void *)1;
static long (*put)(void *, const void *, const void *, unsigned long long) = (void *)2;
static long (*load)(const void *, unsigned, void *, unsigned, unsigned) = (void *)68;

SEC("socket")
int choose(void *frame)
{
    unsigned char port[2] = {0, 0};
    unsigned place = 0, once = 1, *count = find(&asked, &place);
    if (count)
        __sync_fetch_and_add(count, 1);
    else
        put(&asked, &place, &once, 0);
    /* From the network header on, which has no options here. */
    if (load(frame, 20, port, 2, 1))
        return -1;
    return port[1] / 2;
}
char _license[] SEC("license") = "MIT";
"""


def compiled(world):
    if not shutil.which("clang"):
        raise Skip("clang is not installed (scripts/setup installs it)")
    source, target = world.folder / "choose.c", world.folder / "choose.o"
    source.write_text(PROGRAM)
    words = ["clang", "-target", "bpf", "-O2", "-g", "-c", source, "-o", target]
    subprocess.run(words, check=True)
    return target


@test(modes=("inprocess",))
def engines_take_turns_beside_queues(world):
    world.kind = "xdp"
    counts = served(world, 3, "--spread", "turns")
    assert counts == [67, 67, 66], counts


@test(device="tap", modes=("inprocess",))
def engines_take_turns_on_a_tap(world):
    assert served(world, 4, "--spread", "turns") == [50] * 4


@test(modes=("inprocess",))
def a_bpf_program_of_the_users_selects_the_engine(world):
    server = world.stack(
        *world.program("engines.py"),
        "own",
        7000,
        4,
        options=("--thread-engines", "4", "--spread", "program")
        + ("--spread-program", str(compiled(world)))
    )
    world.wait_port(7000, process=server)
    until(lambda: engines(world, server) == 4, 10, "every thread has its engine")
    threads = {}
    for _ in range(100):
        with world.connect(7000) as sock:
            port = sock.getsockname()[1]
            threads.setdefault(port % 256 // 2 % 4, set()).add(thread_of(sock))
    # Each answer is one engine.
    assert sorted(len(them) for them in threads.values()) == [1] * len(threads), threads
    assert len(threads) == 4 == len(set.union(*threads.values())), threads
    assert "by the program" in world.admin("status").output()


@test(modes=("inprocess",))
def a_file_that_is_no_program_is_refused_in_one_sentence(world):
    file = world.folder / "empty.o"
    file.write_bytes(b"nothing of the kind")
    program = world.stack("true", options=("--spread", "program", "--spread-program", str(file)))
    assert program.wait(10) != 0
    assert str(file) in program.errors() and "cannot be used" in program.errors(), program.errors()


@test(modes=("inprocess",))
def shares_without_the_rule_are_refused(world):
    program = world.stack("true", options=("--spread-shares", "1,2"))
    assert program.wait(10) != 0
    assert "go together" in program.errors(), program.errors()

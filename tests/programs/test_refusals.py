"""Impossible requests are refused before anything is changed: one sentence and a non-zero exit."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

from harness import Skip, net, test
from harness.process import TICKS, until

ONLY = ("inprocess",)
DEVICE = ["--if", "eth1", "--ip", "10.77.0.2/24", "--gw", "10.77.0.1"]


def state(world):
    """State that must be equal before and after. Not the carrier, which a new link gets a moment
    later."""
    with world.stack_ns.inside():
        told = subprocess.run(
            ["ip", "-json", "addr"], capture_output=True, text=True, check=True
        ).stdout
    links = json.loads(told)
    for link in links:
        del link["operstate"]
        link["flags"] = sorted(set(link["flags"]) - {"NO-CARRIER", "LOWER_UP"})
    files = sorted(str(file) for file in world.run_dir.rglob("*") if not file.is_dir())
    return links, files, world.stack_ns.pids()


def refused(world, *words, says, prefix=(), env=None):
    """`slipstack WORDS` fails with one sentence that contains all of `says`, and nothing has
    changed."""
    before = state(world)
    words = [str(world.slipstack), words[0], "--run-dir", str(world.run_dir), *map(str, words[1:])]
    started = world.process([*world.stack_ns.prefix(), *prefix, *words], env=env or {})
    code = started.wait(15)
    text = started.errors().strip()
    assert code != 0, f"{words} succeeded"
    assert len(text.splitlines()) == 1 and text.startswith(
        "slipstack: "
    ), f"not one sentence: {text!r}"
    for part in says:
        assert part in text, f"{part!r} is not in {text!r}"
    assert "panicked" not in text
    world.leftovers(2)
    assert state(world) == before, f"something has changed:\n{before}\n{state(world)}"


@test(modes=ONLY)
def programs_that_cannot_be_served_are_named(world):
    refused(world, "run", *DEVICE, "--", "no-such-program", says=["no-such-program", "not found"])
    refused(world, "run", *DEVICE, "--", "/no/such", says=["/no/such", "not found"])
    refused(world, "run", *DEVICE, "--", "/etc/passwd", says=["/etc/passwd", "executable"])
    static = build(world, "static", "-static")
    refused(world, "run", *DEVICE, "--", static, says=["statically linked"])
    owned = world.folder / "setuid"
    shutil.copy("/usr/bin/env", owned)
    shutil.chown(owned, "www-data", "www-data")
    owned.chmod(0o4755)
    refused(world, "run", *DEVICE, "--", owned, says=["set-user-id"])
    text = world.folder / "text"
    text.write_text("not a program")
    text.chmod(0o755)
    refused(world, "run", *DEVICE, "--", text, says=["neither"])


@test(modes=ONLY)
def thirty_two_bit_programs_are_refused(world):
    narrow = world.folder / "narrow"
    image = bytearray(Path("/usr/bin/env").read_bytes())
    image[4] = 1
    narrow.write_bytes(image)
    narrow.chmod(0o755)
    refused(world, "run", *DEVICE, "--", narrow, says=["32-bit"])


def build(world, name, *flags):
    source = world.folder / f"{name}.c"
    source.write_text("int main(void) { return 0; }\n")
    target = world.folder / name
    done = subprocess.run(["gcc", *flags, "-o", target, source], capture_output=True, text=True)
    if done.returncode != 0:
        raise Skip(f"gcc cannot build a {name} program: {done.stderr.strip()[:100]}")
    return target


@test(modes=("inprocess",))
def a_program_into_which_nothing_can_be_loaded_is_named(world):
    """The loader preloads no library into a program whose effective user or group differs."""
    for code in (
        "os.setegid(33); os.execv('/bin/true', ['true'])",
        # A child gets the users that its parent has, even if one of them is root.
        "os.seteuid(33); os.waitpid(os.posix_spawn('/bin/true', ['true'], os.environ), 0)",
    ):
        program = world.stack("/usr/bin/python3", "-c", f"import os; {code}")
        assert program.wait(10) == 0
        assert "another effective user" in program.errors(), program.errors()


@test(modes=("inprocess", "instance"))
def an_option_for_encryption_that_the_stack_lacks_is_refused(world):
    """TCP_MD5SIG; IP_MINTTL and IPV6_MINHOPCOUNT are heeded, and IP_TTL protects nothing."""
    code = """
import errno, socket
for family, level, name, size in (2, 0, 21, 4), (2, 6, 14, 216), (10, 41, 73, 4), (2, 0, 2, 4):
    try:
        socket.socket(family).setsockopt(level, name, (64).to_bytes(size, "little"))
        print("taken")
    except OSError as error:
        print(errno.errorcode[error.errno])
"""
    program = world.stack("/usr/bin/python3", "-c", code)
    assert program.wait(10) == 0, program.tail()
    assert program.output().split() == ["taken", "ENOPROTOOPT", "taken", "taken"], program.output()


@test(modes=ONLY)
def wrong_values_are_refused(world):
    for words, says in [
        (["--ip", "10.0.0.5"], ["--ip", "10.0.0.5/24"]),
        (["--ip", "10.0.0.555/24"], ["--ip"]),
        (["--ip", "10.0.0.0/24"], ["--ip"]),
        (["--if", "eth1"], ["--ip"]),
        (["--if", "eth1", "--ip", "10.77.0.2/24", "--gw", "10.78.0.1"], ["--gw", "10.77.0.2/24"]),
        (["--slots", "1"], ["--slots"]),
        (["--spin-us", "x"], ["--spin-us"]),
        (["--gather-us", "1001"], ["--gather-us", "1000"]),
        (["--cores", "500"], ["cores 500"]),
        (["--config", "/no/such.toml"], ["/no/such.toml"]),
    ]:
        refused(world, "run", *words, "--", "true", says=says)
    refused(world, "run", "--", "true", says=["SLIPSTACK_IP"], env={"SLIPSTACK_IP": "nonsense"})
    wrong = world.folder / "wrong.toml"
    wrong.write_text("colour = 1\n")
    refused(world, "run", "--config", wrong, "--", "true", says=["colour"])
    refused(world, "instance", says=["--name"])


@test(modes=ONLY)
def interfaces_that_cannot_be_used_are_refused(world):
    refused(world, "run", "--if", "eth9", "--ip", "10.77.0.2/24", "--", "true", says=["eth9"])
    refused(world, "run", "--if", "lo", "--ip", "10.77.0.2/24", "--", "true", says=["lo"])
    world.stack_ns.ip("link", "set", "eth1", "down")
    refused(world, "run", *DEVICE, "--", "true", says=["eth1", "down"])
    refused(world, "instance", "--name", "a", *DEVICE, says=["eth1", "down"])


@test(modes=ONLY)
def addresses_in_use_are_refused(world):
    world.stack_ns.ip("addr", "add", "10.77.0.2/24", "dev", "eth1")
    refused(world, "run", *DEVICE, "--", "true", says=["10.77.0.2", "in use"])
    world.stack_ns.ip("addr", "del", "10.77.0.2/24", "dev", "eth1")
    # The peer has it.
    world.peer_ns.ip("addr", "add", "10.77.0.2/24", "dev", "eth1")
    refused(world, "run", *DEVICE, "--", "true", says=["10.77.0.2", "in use"])


@test(modes=ONLY)
def missing_capabilities_are_named(world):
    drop = ["setpriv", "--bounding-set", "-net_admin,-net_raw", "--inh-caps", "-net_admin,-net_raw"]
    refused(world, "run", *DEVICE, "--", "true", says=["CAP_NET_ADMIN"], prefix=drop)
    refused(world, "run", "--", "true", says=["CAP_NET_ADMIN"], prefix=drop)
    nobody = ["setpriv", "--reuid", "www-data", "--regid", "www-data", "--clear-groups"]
    if os.access(world.slipstack, os.X_OK) and world.others_may_run_it():
        refused(world, "run", *DEVICE, "--", "true", says=["CAP_NET_ADMIN"], prefix=nobody)


@test(modes=ONLY)
def a_user_without_a_stack_of_its_own_sees_that_of_root(world):
    world.skip_unless_others_may_run_it()
    steps = [
        "mount -t tmpfs -o mode=755 none /run || exit",
        f"{world.slipstack} run {' '.join(DEVICE)} -- sleep 2 &",
        "until ls /run/slipstack/*/control; do sleep 0.05; done",
        (
            "setpriv --reuid nobody --regid nogroup --clear-groups env XDG_RUNTIME_DIR=/nowhere"
            f" {world.slipstack} status"
        ),
        "wait",
    ]
    started = world.beside("unshare", "-m", "sh", "-c", "\n".join(steps))
    started.wait(15)
    assert "eth1  10.77.0.2/24" in started.output(), started.tail()


@test(modes=ONLY)
def a_capture_file_that_cannot_be_written_is_refused(world):
    says = ["/nowhere", "no directory"]
    refused(world, "run", "--pcap", "/nowhere/frames", "--", "true", says=says)
    refused(world, "instance", "--name", "a", "--pcap", "/nowhere/frames", says=says)


@test(modes=ONLY)
def an_instance_that_does_not_run_is_named(world):
    said = ["no instance named 7 runs", "slipstack instance --name 7"]
    refused(world, "run", "--", "true", says=said, env={"FF_PROC_ID": 7})


@test(modes=("instance",))
def an_instance_that_was_killed_with_its_keeper_is_named(world):
    """Its socket file remains."""
    world.ready_instance()
    end = time.monotonic() + 10
    # A listing may miss a process that is being forked.
    looks = 0
    while looks < 3:
        pids = world.stack_ns.pids()
        looks = 0 if pids else looks + 1
        assert time.monotonic() < end, pids
        time.sleep(0.05)
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        world.instance.child.poll()
    refused(world, "run", "--instance", "t", "--", "true", says=["no instance named t runs"])
    shutil.rmtree(world.run_dir)
    world.instance = None


@test(modes=ONLY)
def output_that_cannot_be_written_is_an_error(world):
    server = world.stack(*world.program("threaded.py"), "server", 7000)
    world.wait_port(7000, process=server)
    slipstack = [*world.stack_ns.prefix(), str(world.slipstack)]
    for words in (["status"], ["status", "--json"], ["why", str(server.pid)]):
        with open("/dev/full", "w") as full:
            words = [*slipstack, words[0], "--run-dir", str(world.run_dir), *words[1:]]
            told = subprocess.run(words, stdout=full, stderr=subprocess.PIPE, text=True, timeout=10)
        assert told.returncode == 1, told
        (said,) = told.stderr.splitlines()
        assert said.startswith("slipstack: ") and "No space left" in said, said
    # A reader that closes the pipe ends the command without an error.
    reader, writer = os.pipe()
    os.close(reader)
    words = [*slipstack, "status", "--run-dir", str(world.run_dir)]
    told = subprocess.run(words, stdout=writer, stderr=subprocess.PIPE, text=True, timeout=10)
    assert (told.returncode, told.stderr) == (0, ""), told
    # A warning at a program's start does not stop the start.
    words = [*slipstack, "run", "--run-dir", str(world.run_dir), *DEVICE, "--", "echo", "started"]
    told = subprocess.run(words, stdout=subprocess.PIPE, stderr=writer, text=True, timeout=10)
    os.close(writer)
    assert (told.returncode, told.stdout) == (0, "started\n"), told


@test(modes=ONLY)
def processes_without_sockets_are_told_apart_by_whether_they_have_the_library(world):
    server = world.stack(*world.program("threaded.py"), "server", 7000)
    world.wait_port(7000, process=server)
    idle = world.stack("sleep", "10")
    until(lambda: "sleep" in open(f"/proc/{idle.pid}/comm").read(), 5, "the program runs")
    other = world.process([*world.stack_ns.prefix(), "sleep", "10"])
    ended = world.process([*world.stack_ns.prefix(), "true"])
    ended.wait(5)
    for process, said in (
        (idle, "and has not used the network yet"),
        (other, "it was not started with slipstack run"),
        (ended, f"there is no process {ended.pid}"),
    ):
        told = world.admin("why", process.pid)
        assert told.wait(5) != 0 and said in told.errors(), (said, told.tail())


@test(modes=ONLY)
def stopping_all_instances_names_the_one_in_use(world):
    for name, address in (("ss2", "10.78.0.2/24"), ("ss3", "10.79.0.2/24")):
        world.stack_ns.ip("link", "add", name, "type", "veth", "peer", "name", f"{name}p")
        for end in (name, f"{name}p"):
            world.stack_ns.ip("link", "set", end, "up")
        words = [
            "run",
            "--run-dir",
            str(world.run_dir),
            "--if",
            name,
            "--ip",
            address,
            "--persist",
            "--",
            "true",
        ]
        world.process([*world.stack_ns.prefix(), str(world.slipstack), *words]).finish()
    server = world.stack(*world.program("threaded.py"), "server", 7000)
    world.wait_port(7000, process=server)
    told = world.admin("stop", "--all")
    assert told.child.returncode == 1 and "eth1 is in use by" in told.errors(), told.tail()
    assert told.output().split() == ["stopped", "ss2", "stopped", "ss3"], told.tail()
    until(
        lambda: [
            line.split()[0]
            for line in world.admin("status").output().splitlines()
            if "slots" in line
        ]
        == ["eth1"],
        5,
        "eth1 is left",
    )
    assert server.is_running()


@test(modes=("instance",))
def a_name_that_an_instance_has_already_is_refused(world):
    world.ready_instance()
    words = [
        str(world.slipstack),
        "instance",
        "--name",
        "t",
        "--run-dir",
        str(world.run_dir),
        *DEVICE,
    ]
    second = world.process(world.stack_ns.prefix() + words)
    assert second.wait(10) != 0 and " t " in second.errors().replace("'", " ").replace(
        "`", " "
    ), second.errors()


@test(modes=ONLY)
def a_second_address_on_the_same_device_is_refused(world):
    server = world.stack(*world.program("threaded.py"), "server", 7000)
    world.wait_port(7000, process=server)
    words = [
        "run",
        "--run-dir",
        str(world.run_dir),
        "--if",
        "eth1",
        "--ip",
        "10.77.0.3/24",
        "--",
        "true",
    ]
    other = world.process(world.stack_ns.prefix() + [str(world.slipstack), *words])
    assert other.wait(10) != 0 and "10.77.0.2" in other.errors(), other.tail()
    assert server.is_running()


@test(modes=ONLY)
def an_interface_that_was_deleted_under_a_program_is_named(world):
    server = world.stack(*world.program("threaded.py"), "server", 7000)
    world.wait_port(7000, process=server)
    assert "deleted" not in world.admin("status").output()
    world.stack_ns.ip("link", "set", "eth1", "down")
    told = world.admin("status")
    assert "is down" in told.output(), told.tail()
    world.stack_ns.ip("link", "del", "eth1")
    told = world.admin("status")
    assert "deleted" in told.output(), told.tail()
    words = ["run", "--run-dir", str(world.run_dir), *DEVICE, "--", "true"]
    other = world.process([*world.stack_ns.prefix(), str(world.slipstack), *words])
    assert other.wait(10) != 0 and "no network interface eth1" in other.errors(), other.tail()
    assert server.is_running()
    # The keeper takes up a new one of its name.
    net.join(world.stack_ns, world.peer_ns)
    until(lambda: "deleted" not in world.admin("status").output(), 10, "it is there again")
    world.process([*world.stack_ns.prefix(), str(world.slipstack), *words]).finish()


@test(modes=("inprocess", "instance"), device="tap", serial=True)
def a_tap_that_was_deleted_under_a_program_keeps_no_process_busy(world):
    server = world.stack(*world.program("threaded.py"), "server", 7000)
    world.wait_port(7000, process=server)
    (link,) = [
        line.split(":")[1].strip()
        for line in world.stack_ns.ip("-o", "link").splitlines()
        if "slip" in line
    ]
    # Under another name it works on.
    world.stack_ns.ip("link", "set", link, "down")
    world.stack_ns.ip("link", "set", link, "name", "other", "up")
    assert "deleted" not in world.admin("status").output()
    # While its name is another interface's, the keeper cannot make it again.
    world.stack_ns.ip("link", "add", link, "type", "bridge")
    world.stack_ns.ip("link", "del", "other")
    told = world.admin("status")
    assert "deleted and could not be made again" in told.output(), told.tail()
    time.sleep(0.5)
    before = {pid: ticks(pid) for pid in world.stack_ns.pids()}
    time.sleep(1)
    used = {pid: ticks(pid) - spent for pid, spent in before.items()}
    assert len(used) >= 2 and max(used.values()) < 0.2 * TICKS, f"{used} of {TICKS} ticks"
    world.stack_ns.ip("link", "del", link)
    until(lambda: "deleted" not in world.admin("status").output(), 10, "it is there again")
    world.wait_port(7000, process=server)


def ticks(pid):
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return int(fields[11]) + int(fields[12])


@test(modes=ONLY)
def two_programs_on_one_port_are_refused(world):
    first = world.stack(*world.program("threaded.py"), "server", 7000)
    world.wait_port(7000, process=first)
    second = world.stack(*world.program("threaded.py"), "server", 7000)
    assert second.wait(10) != 0 and "Address already in use" in second.errors(), second.tail()
    assert first.is_running()


@test(modes=ONLY)
def a_run_directory_that_cannot_be_written_is_refused(world):
    """A container with a read-only /run."""
    before = state(world)
    command = (
        f"mount -t tmpfs -o ro none {world.run_dir} && exec {world.slipstack} run --run-dir"
        f" {world.run_dir} {' '.join(DEVICE)} -- true"
    )
    started = world.beside("unshare", "-m", "sh", "-c", command)
    assert started.wait(15) != 0
    (said,) = started.errors().strip().splitlines()
    assert "Read-only file system" in said and "--run-dir" in said, said
    assert state(world) == before


@test(modes=("kernel", "inprocess", "instance"))
def programs_that_have_only_one_of_roots_users_are_served(world):
    """The loader would preload no library into them (AT_SECURE); squid's workers are started so."""
    for which, port, users in (
        ("effective", 7340, "(0, 33, 33)"),
        ("real", 7341, "(33, 0, 0)"),
    ):
        server = world.stack(*world.program("disguised.py"), world.address, port, which)
        world.wait_port(port, process=server)
        with world.connect(port) as client:
            client.sendall(b"hello")
            assert client.recv(100) == b"hello"
        assert server.wait(10) == 0, server.tail()
        lines = server.output().splitlines()
        assert lines[1:] == [f"{users} []", "listens", "(0, 0, 0)"], lines

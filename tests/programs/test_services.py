"""Instances and programs as services: readiness as systemd is told it, and the lines of the
book's units."""

import contextlib
import re
import shlex
import shutil
import socket
import subprocess

from harness import Skip, test
from harness.http import get
from harness.nginx import BINARY, CONF
from harness.process import until
from harness.world import PYTHON, ROOT

BOOK = ROOT / "docs/book/src/configuration.md"
HTTP = ["-m", "http.server", "8080"]


READY = b"READY=1"


@contextlib.contextmanager
def manager(world, address):
    """The socket at which systemd listens. Abstract names belong to a network namespace."""
    with world.stack_ns.inside():
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    with sock:
        sock.bind(address)
        sock.settimeout(10)
        yield sock


def start_instance(world, name, notify, *extra):
    words = [world.slipstack, "instance", "--name", name, "--run-dir", world.run_dir]
    words += [*world.device_options(), *extra]
    env = {"NOTIFY_SOCKET": notify}
    return world.beside(*words, env=env)


def run_at_once(world, name):
    """Runs a program without waiting for the instance."""
    words = [world.slipstack, "run", "--instance", name, "--run-dir", world.run_dir]
    return world.beside(*words, "--", "/bin/true")


def is_notified_when_ready(world, address, notify):
    with manager(world, address) as sock:
        started = start_instance(world, "t", notify)
        assert sock.recv(1000).splitlines() == [READY], started.tail()
        run_at_once(world, "t").finish(5)
        sock.settimeout(0.3)
        with contextlib.suppress(TimeoutError):
            raise AssertionError(f"a second message: {sock.recv(1000)}")
        assert started.stop() == 0


@test(modes=("instance",))
def an_instance_says_when_it_is_ready(world):
    path = str(world.folder / "notify")
    is_notified_when_ready(world, path, path)


@test(modes=("instance",))
def an_instance_says_when_it_is_ready_to_an_abstract_socket(world):
    name = world.folder.name
    is_notified_when_ready(world, f"\0{name}", f"@{name}")


@test(modes=("instance",))
def an_instance_that_cannot_start_does_not_say_that_it_is_ready(world):
    path = str(world.folder / "notify")
    with manager(world, path) as sock:
        started = start_instance(world, "t", path, "--if", "eth9")
        assert started.wait(10) != 0, started.tail()
        sock.settimeout(0.3)
        with contextlib.suppress(TimeoutError):
            raise AssertionError(f"it says {sock.recv(1000)}")


@test(modes=("instance",))
def an_instance_without_a_manager_at_its_socket_starts(world):
    started = start_instance(world, "t", str(world.folder / "nobody"))
    until(started.output, 10, "the instance is ready")
    run_at_once(world, "t").finish(5)


def units():
    """The units in the book, by the path in their first line."""
    found = re.findall(r"```ini\n# (/etc/systemd/\S+)\n(.*?)```", BOOK.read_text(), re.DOTALL)
    assert len(found) == 2, found
    return dict(found)


def command(unit, setting="ExecStart"):
    """The words of a unit's last line of that setting."""
    lines = re.findall(rf"^{setting}=(.*)$", unit, re.MULTILINE)
    words = shlex.split(lines[-1])
    assert words[0] == "/usr/local/bin/slipstack", words
    return words[1:]


@test(modes=("instance",))
def the_units_of_the_book_serve_nginx(world):
    """The device is given by options in place of the configuration file."""
    template, drop_in = (text for _, text in sorted(units().items(), reverse=True))
    assert "Requires=slipstack@web.service" in drop_in
    starts = [word.replace("%i", "web") for word in command(template)]
    path = str(world.folder / "notify")
    with manager(world, path) as sock:
        words = [world.slipstack, starts[0], "--run-dir", world.run_dir, *starts[1:]]
        instance = world.beside(*words, *world.device_options(), env={"NOTIFY_SOCKET": path})
        assert sock.recv(1000).splitlines() == [READY], instance.tail()
    folder = world.folder / "nginx"
    (folder / "www").mkdir(parents=True)
    settings = {"folder": folder, "workers": 2, "listen": "8080", "events": "", "more": ""}
    conf = folder / "nginx.conf"
    # The drop-in's line says whether it is a daemon.
    conf.write_text(CONF.format(user="user www-data;", daemon="", **settings))
    run, *rest = command(drop_in)
    at = rest.index("/usr/sbin/nginx")
    words = [run, "--run-dir", world.run_dir, *rest[:at], BINARY, "-c", conf, *rest[at + 1 :]]
    pid = folder / "nginx.pid"
    world.strays.append(lambda: int(pid.read_text()) if pid.exists() else 0)
    started = world.beside(world.slipstack, *words)
    # A service of the type that the unit of Debian has: its first process ends when it serves.
    started.finish(10)
    world.wait_port(8080)
    assert get(world, 8080, "/hello") == (200, b"hello from nginx\n")
    reload, *rest = (word.replace("%i", "web") for word in command(template, "ExecReload"))
    reloaded = world.admin(reload, *rest, *world.device_options())
    assert reloaded.wait(10) == 0, reloaded.tail()


@test(modes=("instance",))
def systemd_accepts_the_units_of_the_book(world):
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        raise Skip("systemd-analyze is not installed")
    for path, text in units().items():
        text = text.replace("/usr/local/bin/slipstack", str(world.slipstack))
        if path.endswith("slipstack@.service"):
            template = world.folder / "slipstack@.service"
            template.write_text(text)
        else:
            whole = world.folder / "nginx.service"
            whole.write_text(f"[Service]\nExecStart=/bin/false\n{text}")
    words = [analyze, "verify", "--man=no", template.with_name("slipstack@web.service"), whole]
    (world.folder / "slipstack@web.service").symlink_to(template)
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True)
    said = [line for line in done.stderr.splitlines() if str(world.folder) in line]
    assert done.returncode == 0 and not said, done.stderr


def setpriv_line():
    """The line of the book by which a program is started as another user, behind `run …`."""
    text = " ".join(BOOK.read_text().split())
    found = re.search(r"`slipstack run … -- (setpriv [^`]*) varnishd …`", text)
    return found.group(1).replace("varnish", "www-data").split()


@test
def a_program_that_is_started_as_its_user_behind_run_is_served(world):
    world.skip_unless_others_may_run_it()
    started = world.stack(*setpriv_line(), PYTHON, *HTTP, "--directory", ROOT / "docs/book/src")
    world.wait_port(8080, process=started)
    assert get(world, 8080, "/limits.md")[0] == 200
    status = open(f"/proc/{started.pid}/status").read()
    assert "Uid:\t33\t33\t33\t33" in status, "it is not root"
    if world.mode != "kernel":
        assert "8080" in world.admin("why", started.pid).output()


VARNISH = ["-F", "-a", ":8080", "-b", "none", "-s", "malloc,16m", "-T", "none"]


@test
def varnish_is_served_behind_run_as_the_book_says(world):
    varnish = shutil.which("varnishd", path="/usr/sbin:/usr/bin")
    if varnish is None:
        raise Skip("varnishd is not installed")
    world.skip_unless_others_may_run_it()
    home = world.folder / "varnish"
    home.mkdir()
    shutil.chown(home, "www-data")
    started = world.stack(*setpriv_line(), varnish, *VARNISH, "-n", home)
    world.wait_port(8080, 20, process=started)
    assert get(world, 8080, "/")[0] == 503, "its own page, as there is no server behind it"

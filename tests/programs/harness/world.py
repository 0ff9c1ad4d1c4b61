"""One test's surroundings: namespaces, device, placement, processes, and their end."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

from . import net
from .process import Process, until
from .registry import Skip

ROOT = Path(__file__).resolve().parents[3]
PROGRAMS = Path(__file__).resolve().parents[1] / "programs"
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
PYTHON = "/usr/bin/python3"


class World:
    """`address` is served by the stack under test (kernel or Slipstack), `peer_address` by the
    kernel."""

    STACK = "10.77.0.2"
    PEER = "10.77.0.1"
    STACK6 = "fd00:77::2"
    PEER6 = "fd00:77::1"
    # Of a second interface, if a test has one.
    STACK_B, PEER_B = "10.78.0.2", "10.78.0.1"
    STACK6_B, PEER6_B = "fd00:78::2", "fd00:78::1"

    def __init__(self, mode, device="veth"):
        self.mode = mode
        self.device = device
        # The value of `--device`, if any.
        self.kind = os.environ.get("SLIPSTACK_TEST_DEVICE")
        self.slipstack = Path(
            os.environ.get("SLIPSTACK_TEST_BIN", TARGET / "release" / "slipstack")
        )
        self.folder = Path(tempfile.mkdtemp(prefix=f"ss-{os.getpid()}-"))
        self.folder.chmod(0o755)
        self.run_dir = self.folder / "run"
        self.run_dir.mkdir(mode=0o755)
        self.address = self.STACK
        self.peer_address = self.PEER
        self.has_ipv6 = False
        # The namespace at the other end of the second interface.
        self.peer_b_ns = None
        self.processes = []
        # The recorder of the test's frames, which is not part of the test.
        self.recorder = None
        # Functions that return a process which is not our child (a daemon), to be ended at the end.
        self.strays = []
        self.instance = None
        self.namespaces = []
        self.stack_ns = self._namespace("s")
        self.peer_ns = self.stack_ns
        if device == "veth":
            self._pair()
        elif device == "tap" and mode == "kernel":
            self._kernel_pair()

    def _namespace(self, suffix):
        namespace = net.Namespace(f"ss-{os.getpid()}-{suffix}")
        self.namespaces.append(namespace)
        return namespace

    def _pair(self):
        self.peer_ns = self._namespace("c")
        net.join(self.stack_ns, self.peer_ns)
        self.peer_ns.ip("addr", "add", f"{self.PEER}/24", "dev", "eth1")
        if self.mode == "kernel":
            self.stack_ns.ip("addr", "add", f"{self.STACK}/24", "dev", "eth1")
            self.stack_ns.ip("route", "add", "default", "via", self.PEER)

    def use_ipv6(self):
        """Gives the veth pair addresses of IPv6 too; before the first program is started."""
        self.has_ipv6 = True
        for side in (self.stack_ns, self.peer_ns):
            side.sysctl("net.ipv6.conf.eth1.disable_ipv6", 0)
        self.peer_ns.ip("addr", "add", f"{self.PEER6}/64", "dev", "eth1", "nodad")
        if self.mode == "kernel":
            self.stack_ns.ip("addr", "add", f"{self.STACK6}/64", "dev", "eth1", "nodad")

    def use_second_pair(self):
        """Adds a second interface to the stack, eth2, with another namespace at the other end;
        before the first program is started."""
        self.peer_b_ns = self._namespace("d")
        net.join(self.stack_ns, self.peer_b_ns, "eth2")
        self.peer_b_ns.ip("addr", "add", f"{self.PEER_B}/24", "dev", "eth2")
        if self.mode == "kernel":
            self.stack_ns.ip("addr", "add", f"{self.STACK_B}/24", "dev", "eth2")
        if self.has_ipv6:
            for side in (self.stack_ns, self.peer_b_ns):
                side.sysctl("net.ipv6.conf.eth2.disable_ipv6", 0)
            self.peer_b_ns.ip("addr", "add", f"{self.PEER6_B}/64", "dev", "eth2", "nodad")
            if self.mode == "kernel":
                self.stack_ns.ip("addr", "add", f"{self.STACK6_B}/64", "dev", "eth2", "nodad")

    def _kernel_pair(self):
        """Replaces Slipstack's own TAP when the tests are run on the kernel."""
        self.stack_ns.ip("addr", "add", f"{self.STACK}/32", "dev", "lo")
        self.peer_address = self.STACK

    # Starting programs

    def options(self, extra=()):
        """Options of `slipstack run` for this placement."""
        words = ["--run-dir", str(self.run_dir)]
        if self.mode == "instance":
            words += ["--instance", self.ready_instance()]
        elif self.device == "veth":
            words += self.device_options()
        return words + list(extra)

    def device_options(self):
        if self.device != "veth":
            return []
        words = ["--if", "eth1", "--ip", f"{self.STACK}/24", "--gw", self.PEER]
        words += ["--device", self.kind] if self.kind else []
        words += ["--ip", f"{self.STACK6}/64"] if self.has_ipv6 else []
        if self.peer_b_ns is not None:
            words += ["--if", "eth2", "--ip", f"{self.STACK_B}/24"]
            words += ["--ip", f"{self.STACK6_B}/64"] if self.has_ipv6 else []
        return words

    def ready_instance(self):
        if self.instance is None:
            self.instance = self.start_instance("t")
        return "t"

    def start_instance(self, name, *extra):
        words = [str(self.slipstack), "instance", "--name", name, "--run-dir", str(self.run_dir)]
        words += self.device_options() + list(extra)
        started = self.process(self.stack_ns.prefix() + words)
        until(
            lambda: started.errors() or started.output() or not started.is_running(),
            10,
            "the instance is ready",
        )
        assert started.is_running(), f"the instance ended\n{started.tail()}"
        return started

    def stack(self, *words, options=(), before=(), **keywords):
        """Starts a program on the stack under test. Its process id is the program's. `before`: a
        command prefix that sets limits and the like and executes the rest."""
        words = [str(word) for word in words]
        if self.mode != "kernel":
            words = [str(self.slipstack), "run", *self.options(options), "--", *words]
        started = self.process([*self.stack_ns.prefix(), *before, *words], **keywords)
        if self.device == "tap" and self.mode != "kernel":
            self._learn_address(started)
        return started

    def _learn_address(self, started):
        """With a TAP of Slipstack's own, its first line has the program's address."""
        until(
            lambda: "slipstack:" in started.errors() or not started.is_running(),
            10,
            "the line with the address",
        )
        words = started.errors().replace(",", " ").replace("(", " ").replace(")", " ").split()
        found = [
            word.rstrip(".:;").split("/")[0].split(":")[0]
            for word in words
            if word.startswith("10.254.")
        ]
        if found:
            self.address = found[0]
            self.peer_address = self.address.rsplit(".", 1)[0] + ".1"

    def peer(self, *words, **keywords):
        """Starts a program on the kernel at the other end."""
        return self.process(self.peer_ns.prefix() + [str(word) for word in words], **keywords)

    def peer_b(self, *words, **keywords):
        """Starts a program on the kernel at the other end of the second interface."""
        return self.process(self.peer_b_ns.prefix() + [str(word) for word in words], **keywords)

    def beside(self, *words, **keywords):
        """Starts a program on the kernel of the stack's namespace (its 127.0.0.1)."""
        return self.process(self.stack_ns.prefix() + [str(word) for word in words], **keywords)

    def process(self, words, **keywords):
        # No DNS server answers in the namespace, and http.server looks up its own name.
        env = dict(
            os.environ,
            RES_OPTIONS="timeout:1 attempts:1",
            **{key: str(value) for key, value in keywords.pop("env", {}).items()},
        )
        started = Process(words, self.folder, env=env, **keywords)
        self.processes.append(started)
        return started

    def admin(self, *words, seconds=20, **keywords):
        """Runs `slipstack status`, `why` or `stop`; returns the finished process."""
        words = [str(word) for word in words]
        words = [str(self.slipstack), words[0], "--run-dir", str(self.run_dir), *words[1:]]
        started = self.process(self.stack_ns.prefix() + words, **keywords)
        started.wait(seconds)
        return started

    def others_may_run_it(self):
        """Whether an ordinary user may enter the folder: below /root he may not."""
        library = str(self.slipstack.with_name("libslipstack.so"))
        user = ["setpriv", "--reuid", "www-data", "--regid", "www-data", "--clear-groups"]
        return subprocess.run([*user, "test", "-r", library], capture_output=True).returncode == 0

    def skip_unless_others_may_run_it(self):
        if not self.others_may_run_it():
            raise Skip("others may not run the command under test")

    def program(self, name):
        return [PYTHON, "-u", str(PROGRAMS / name)]

    # Clients inside this process

    @contextlib.contextmanager
    def at_peer(self):
        with self.peer_ns.inside():
            yield

    def connect(self, port, seconds=10, address=None):
        """A connected kernel socket at the peer."""
        with self.peer_ns.inside():
            return socket.create_connection((address or self.address, port), timeout=seconds)

    def connect_beside(self, port, seconds=10):
        """A connected kernel socket to 127.0.0.1 in the stack's namespace."""
        with self.stack_ns.inside():
            return socket.create_connection(("127.0.0.1", port), timeout=seconds)

    def wait_port(self, port, seconds=10, process=None, address=None):
        if process is not None and {str(self.slipstack), "run"} <= set(process.words):
            # Until then nothing answers ARP, and the kernel repeats its request only after a
            # second.
            until(
                lambda: "is reached at" in process.errors() or not process.is_running(),
                seconds,
                "the stack is up",
            )

        def is_open():
            if process is not None:
                assert process.is_running(), f"the server ended\n{process.tail()}"
            try:
                # A SYN that came before the stack had its address is repeated after a second.
                self.connect(port, 3, address).close()
                return True
            except OSError:
                return False

        until(is_open, seconds, f"port {port} accepts connections")

    # The end

    def finish(self):
        """Ends all processes, in order, and reports what is left behind."""
        for pid in filter(None, (find() for find in self.strays)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        for process in reversed(self.processes):
            if process is not self.instance and process.is_running():
                process.signal(signal.SIGTERM)
        for process in self.processes:
            if process is not self.instance:
                with contextlib.suppress(AssertionError):
                    process.wait(5)
        if self.instance is not None and self.instance.is_running():
            self.instance.signal(signal.SIGTERM)
            with contextlib.suppress(AssertionError):
                self.instance.wait(5)
        if self.mode != "kernel":
            self._stop_stack_at_peer()
            # The last keeper would wait a second for another program.
            self.admin("stop", "--all")
        return self.leftovers()

    def _stop_stack_at_peer(self):
        """Ends it before the stack under test: an acknowledgement that arrived while a client
        ended may be lost, and its keeper sends the FIN once more, which needs an answer."""
        stray = lambda: set(self.peer_ns.pids()) - {self.recorder and self.recorder.pid}
        if self.peer_ns is not self.stack_ns and stray():
            words = [str(self.slipstack), "stop", "--run-dir", str(self.run_dir), "--all"]
            self.peer(*words).wait(20)
            with contextlib.suppress(AssertionError):
                until(lambda: not stray(), 5, "the stack at the peer has ended")

    def leftovers(self, seconds=6):
        found = []
        end = time.monotonic() + seconds
        while True:
            found = self._leftovers()
            if not found or time.monotonic() > end:
                return found
            time.sleep(0.05)

    def _leftovers(self):
        found = []
        for namespace in self.namespaces:
            for pid in namespace.pids():
                if self.recorder is not None and pid == self.recorder.pid:
                    continue
                with contextlib.suppress(OSError):
                    words = (
                        Path(f"/proc/{pid}/cmdline")
                        .read_bytes()
                        .replace(b"\0", b" ")
                        .decode(errors="replace")
                    )
                    found.append(f"process {pid}: {words.strip()[:120]}")
        if self.mode != "kernel":
            # The folder may vanish while it is read: the last keeper removes what it made.
            with contextlib.suppress(FileNotFoundError):
                found += [f"file {file}" for file in self.run_dir.rglob("*") if not file.is_dir()]
            links = self.stack_ns.ip("-o", "link", "show", check=False)
            found += [
                f"device {line.split(':')[1].strip()}"
                for line in links.splitlines()
                if "slip" in line
            ]
        return found

    def remove(self):
        for namespace in self.namespaces:
            namespace.remove()
        shutil.rmtree(self.folder, ignore_errors=True)

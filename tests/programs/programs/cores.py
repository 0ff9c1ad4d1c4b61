"""Answers each line with the processors on which something may run, as the kernel lists them:
`self` the thread that waits, `thread` a new thread, `fork` a child, `spawn` and `system` a new
program, `others` the process's other threads. `choose N` binds the thread that waits itself.
Usage: cores.py PORT"""

import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

SHOWN = ["grep", "Cpus_allowed_list", "/proc/self/status"]


def listed(task="thread-self"):
    lines = Path(f"/proc/{task}/status").read_text().splitlines()
    return next(line for line in lines if line.startswith("Cpus_allowed_list")).split()[1]


def on_thread():
    found = []
    thread = threading.Thread(target=lambda: found.append(listed()))
    thread.start()
    thread.join()
    return found[0]


def in_child():
    end, other = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(other, listed().encode())
        os._exit(0)
    os.waitpid(child, 0)
    return os.read(end, 100).decode()


def answer(what):
    match what.split():
        case ["self"]:
            return listed()
        case ["thread"]:
            return on_thread()
        case ["fork"]:
            return in_child()
        case ["spawn"]:
            return subprocess.run(SHOWN, capture_output=True, text=True).stdout.split()[1]
        case ["system"]:
            return os.popen(" ".join(SHOWN)).read().split()[1]
        case ["others"]:
            tasks = [task for task in os.listdir("/proc/self/task") if int(task) != os.getpid()]
            return " ".join(sorted({listed(f"self/task/{task}") for task in tasks}))
        case ["choose", core]:
            os.sched_setaffinity(0, {int(core)})
            return "chosen"


with socket.create_server(("0.0.0.0", int(sys.argv[1]))) as listener:
    while True:
        sock, _ = listener.accept()
        with sock, sock.makefile() as lines:
            for line in lines:
                sock.sendall(answer(line.strip()).encode() + b"\n")

"""`--cores` with several: each thread that has an engine runs on one of them."""

import json

from harness import test
from harness.nginx import Nginx
from harness.process import until

CORES = ("--cores", "0,1")


def cores_of(pid):
    with open(f"/proc/{pid}/status") as status:
        line = next(line for line in status if line.startswith("Cpus_allowed_list"))
    return line.split()[1]


@test(modes=("inprocess",))
def each_worker_of_nginx_runs_on_a_core_of_its_own_unless_nginx_says_otherwise(world):
    nginx = Nginx(world, workers=2, options=CORES)
    workers = nginx.workers()
    until(lambda: sorted(map(cores_of, workers)) == ["0", "1"], 5, "a core for each worker")
    assert cores_of(nginx.master()) == "0-1"
    (report,) = json.loads(world.admin("status", "--json").finish())
    told = {engine["pid"]: engine["cores"] for engine in report["engines"]}
    assert told == {pid: cores_of(pid) for pid in workers}, told
    slots = {engine["slot"]: engine["cores"] for engine in report["engines"]}
    assert slots == {1: "0", 2: "1"}, slots


@test(modes=("inprocess",))
def what_a_bound_thread_starts_is_free_and_a_programs_own_choice_stays(world):
    server = world.stack(*world.program("cores.py"), 7000, options=CORES)
    world.wait_port(7000, process=server)
    lines = (sock := world.connect(7000)).makefile()

    def ask(what):
        sock.sendall(f"{what}\n".encode())
        return lines.readline().strip()

    assert ask("self") == "0"
    for what in ("thread", "fork", "spawn", "system"):
        assert (what, ask(what), ask("self")) == (what, "0-1", "0")
    assert ask("others") in ("0-1", "")
    assert ask("choose 1") == "chosen"
    assert [ask(what) for what in ("self", "spawn", "fork", "self")] == ["1"] * 4

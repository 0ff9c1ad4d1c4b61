"""Servers in Rust of several threads."""

from harness.world import ROOT, TARGET
from page import Outcome, entry
from page import tools

BOTH = "3 MB down, 3 MB up"
TOKIO = TARGET / "debug" / "slipstack-tokio-echo"
HYPER = TARGET / "hyper" / "release" / "slipstack-hyper-echo"


def own(package, lock, program):
    """For an entry: how the version of the library is asked for, and the program that uses it."""
    return (["grep", "-A1", f'^name = "{package}"$', str(ROOT / lock)], program)


@entry("tokio (Rust), two threads", packages="", own=own("tokio", "Cargo.lock", TOKIO))
def tokio(world):
    server = world.stack(TOKIO, "server", "0.0.0.0:8000")
    world.wait_port(8000, process=server)
    return Outcome(BOTH, tools.echoed(world, 8000).rate, "echoes/s")


@entry(
    "hyper (Rust), two threads",
    packages="wrk curl",
    own=own("hyper", "tests/page/hyper/Cargo.lock", HYPER),
)
def hyper(world):
    server = world.stack(HYPER, "0.0.0.0:8000")
    world.wait_port(8000, process=server)
    url = f"http://{world.address}:8000/"
    path = tools.blob(world)
    for _ in range(4):
        tools.post_echo(world, url, path)
    return Outcome("3 MB echoed, four times", tools.wrk(world, url), "requests/s")

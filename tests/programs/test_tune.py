"""`slipstack tune`: what it shows, what it changes, and that it goes back exactly."""

import json
from pathlib import Path

from harness import test
from test_flapping import give_queues

NAMES = "/proc/sys/net/core/somaxconn"


def everything(world):
    """All that the command may change, as the kernel has it."""
    read = (
        "for f in /sys/class/net/eth1/queues/*/[rx]ps_cpus /proc/sys/net/core/somaxconn; do echo $f"
        " $(cat $f 2>&1); done; ethtool -l eth1 2>&1; ethtool -k eth1 2>&1"
    )
    return inside(world, "sh", "-c", read).finish()


def inside(world, *words):
    """With a /sys of the namespace, as `ip netns exec` makes it."""
    return world.process(["ip", "netns", "exec", world.stack_ns.name, *map(str, words)])


def tune(world, *words):
    return inside(world, world.slipstack, "tune", "--run-dir", world.run_dir, "-i", "eth1", *words)


@test(modes=("inprocess",))
def tune_shows_changes_and_restores_the_former_settings(world):
    inside(world, "sh", "-c", f"echo 100 > {NAMES}").finish()
    inside(world, "ethtool", "-K", "eth1", "gro", "off").finish()
    before = everything(world)
    shown = json.loads(tune(world, "--json").finish())
    wanted = {row["name"]: row["wanted"] for row in shown}
    assert wanted["net.core.somaxconn"] == "4096", shown
    assert wanted["generic receive offload"] == "1", shown
    assert "--apply" in tune(world).finish()
    assert everything(world) == before, "nothing is changed by looking"

    assert tune(world, "--apply").wait(10) == 0
    assert inside(world, "cat", NAMES).finish().strip() == "4096"
    left = json.loads(tune(world, "--json").finish())
    assert [row for row in left if row["wanted"]] == [], left
    # A second time there is nothing, and what was there first is not forgotten.
    assert tune(world, "--apply").wait(10) == 0

    assert tune(world, "--undo").wait(10) == 0
    assert everything(world) == before
    assert not list(Path(world.run_dir).glob("tune-*"))
    again = tune(world, "--undo")
    assert again.wait(10) != 0
    assert "there is no change on eth1 to undo" in again.errors(), again.errors()


@test(modes=("inprocess",))
def changes_by_others_are_undone_and_those_of_a_former_interface_forgotten(world):
    inside(world, "sh", "-c", f"echo 100 > {NAMES}").finish()
    inside(world, "ethtool", "-K", "eth1", "gro", "off").finish()
    before = everything(world)
    assert tune(world, "--apply").wait(10) == 0
    inside(world, "sh", "-c", f"echo 222 > {NAMES}").finish()
    inside(world, "ethtool", "-K", "eth1", "tso", "off", "gro", "off").finish()
    # Nothing of the command runs any more, and its record is in a file.
    assert tune(world, "--undo").wait(10) == 0
    inside(world, "ethtool", "-K", "eth1", "tso", "on").finish()
    assert everything(world) == before
    assert tune(world, "--apply").wait(10) == 0
    world.stack_ns.ip("link", "del", "eth1")
    world.stack_ns.ip("link", "add", "eth1", "type", "veth", "peer", "name", "eth2")
    fresh = everything(world)
    assert tune(world, "--undo").wait(10) == 0
    # The limit is the namespace's.
    assert everything(world) == fresh.replace(f"{NAMES} 4096", f"{NAMES} 100")


@test(modes=("inprocess",))
def the_interfaces_of_another_namespace_are_left_alone(world):
    """Where /sys shows them: `nsenter` does not make another one, as `ip netns exec` does."""
    words = ["tune", "--run-dir", world.run_dir, "-i", "eth1"]
    command = ["nsenter", f"--net={world.stack_ns.path}", world.slipstack, *words, "--json"]
    command = ["ip", "netns", "exec", world.peer_ns.name, *command]
    shown = json.loads(world.process([str(word) for word in command]).finish())
    names = {row["name"]: row["now"] for row in shown}
    assert names["queues in /sys"] == "hidden" and not any("RPS" in it for it in names), names


@test(modes=("inprocess",))
def an_interface_with_several_queues_is_tuned_and_restored(world):
    give_queues(world)
    before = everything(world)
    shown = json.loads(tune(world, "--json").finish())
    names = {row["name"] for row in shown if row["wanted"]}
    # A veth pair has four queues here and uses two; the machine has two cores or more.
    assert {"XPS of tx-0", "XPS of tx-1"} <= {row["name"] for row in shown}, shown
    assert "net.core.somaxconn" in {row["name"] for row in shown}, shown
    assert tune(world, "--apply").wait(10) == 0
    left = json.loads(tune(world, "--json").finish())
    assert [row for row in left if row["wanted"]] == [], left
    assert not names or everything(world) != before
    if names:
        assert tune(world, "--undo").wait(10) == 0
    assert everything(world) == before


@test(modes=("inprocess",))
def settings_that_a_machine_does_not_have_are_left_out_and_those_it_refuses_stay(world):
    """An interface without a driver, and a /sys and a /proc/sys that cannot be written."""
    lo = [world.slipstack, "tune", "--run-dir", world.run_dir, "-i", "lo"]
    shown = json.loads(inside(world, *lo, "--json").finish())
    names = {row["name"] for row in shown}
    assert "net.core.somaxconn" in names and not any("ring" in name for name in names), shown
    inside(world, "ethtool", "-K", "eth1", "gro", "off").finish()
    inside(world, "sh", "-c", f"echo 100 > {NAMES}").finish()
    before = everything(world)
    words = " ".join(map(str, [world.slipstack, "tune", "--run-dir", world.run_dir, "-i", "eth1"]))
    read_only = "mount -o remount,ro /sys && mount --bind /proc/sys /proc/sys"
    read_only += " && mount -o remount,ro,bind /proc/sys && exec "
    applied = inside(world, "sh", "-c", f"{read_only} {words} --apply")
    assert applied.wait(10) == 0, applied.tail()
    told = applied.errors() + applied.output()
    assert "net.core.somaxconn: stays 100: Read-only file system" in told, told
    assert "generic receive offload: 0 -> 1" in told and " refused" in told, told
    assert everything(world) != before
    assert tune(world, "--undo").wait(10) == 0
    assert everything(world) == before


@test(modes=("inprocess",))
def an_interface_that_is_not_there_is_refused(world):
    program = inside(world, world.slipstack, "tune", "--run-dir", world.run_dir, "-i", "nowhere0")
    assert program.wait(10) != 0
    assert "no network interface" in program.errors(), program.errors()

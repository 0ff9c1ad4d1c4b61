"""Programs of Debian 13 in the chroot of `scripts/trixie`."""

from harness.world import TARGET

FOLDER = TARGET / "trixie"
# Mounts the paths $1, separated by colons, in the chroot $2 and executes the remaining arguments.
# Commands in a network namespace have a mount namespace of their own.
ENTER = """
IFS=:
for path in $1; do
    mkdir -p "$2$path" && mount --rbind "$path" "$2$path" || exit 1
done
shift 2
exec "$@"
"""


def entering(world, *more):
    """The command prefix that runs `chroot`: the run's folder, our library and the system's /dev
    and /proc are mounted there under their own paths."""
    paths = ["/dev", "/proc", str(world.folder), str(TARGET / "release"), *map(str, more)]
    return ["sh", "-c", ENTER, "sh", ":".join(paths), str(FOLDER)]


def own(program):
    """For an entry: how its program tells its version, and where it is."""
    return (inside(program, "-v"), FOLDER / "usr/sbin" / program)


def inside(*words):
    return ["chroot", str(FOLDER), *map(str, words)]

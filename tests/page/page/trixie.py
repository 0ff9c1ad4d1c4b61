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


def own(program, folder="usr/sbin"):
    """For an entry: how its program tells its version, and where it is."""
    return (inside(program, "-V" if program == "curl" else "-v"), FOLDER / folder / program)


def version_of(package):
    """For an entry: how the version of a package there is asked for, and a file that it has."""
    command = inside("dpkg-query", "-W", "-f", "${Version}", package)
    return (command, FOLDER / "var/lib/dpkg/info" / f"{package}.list")


def inside(*words):
    return ["chroot", str(FOLDER), *map(str, words)]

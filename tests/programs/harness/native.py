"""Programs in C against the C library: compiled for a test, and started on the stack."""

import functools
import subprocess

from .process import until
from .world import ROOT, TARGET

EXAMPLES = ROOT / "examples" / "c"
HEADERS = ROOT / "crates" / "capi" / "include"
LIBRARY = TARGET / "release"
STANDARDS = {
    "gcc": ["-std=c11"],
    "clang": ["-std=c11"],
    "g++": ["-std=c++17", "-x", "c++"],
    "clang++": ["-std=c++17", "-x", "c++"],
}


def of_placement(world):
    """GCC's for C, and clang's for C++ in the other placement."""
    return "clang++" if world.mode == "instance" else "gcc"


@functools.cache
def has_sanitizer(compiler):
    words = [compiler, *STANDARDS[compiler], "-fsanitize=address", "-o", "/dev/null", "-"]
    made = subprocess.run(words, input="int main(void) { return 0; }", text=True)
    return made.returncode == 0


def compiled(world, source, compiler="gcc", flags=(), library="fstack"):
    """The path of a program made from `source`, which warnings make fail, linked with one of our
    libraries. Examples run under AddressSanitizer where the compiler has it: GCC brings it along,
    for clang it is a package."""
    is_sanitized = source.parent == EXAMPLES and has_sanitizer(compiler)
    flags = [*flags, "-fsanitize=address"] if is_sanitized else flags
    program = world.folder / f"{source.stem}-{compiler}"
    words = [
        compiler,
        *STANDARDS[compiler],
        "-D_GNU_SOURCE",
        "-O1",
        "-Wall",
        "-Wextra",
        "-Werror",
        f"-I{HEADERS}",
        *flags,
        str(source),
    ]
    words += [
        "-o",
        str(program),
        f"-L{LIBRARY}",
        f"-Wl,-rpath,{LIBRARY}",
        f"-l{library}",
        "-lpthread",
    ]
    made = subprocess.run(words, capture_output=True, text=True)
    assert made.returncode == 0, f"{' '.join(words)}\n{made.stderr}"
    return program


def start(world, program, *words, **keywords):
    """Starts it on the stack's side with the options of this placement; it is reached, or has
    ended, when this returns."""
    started = world.beside(program, *world.options(), *words, **keywords)
    until(
        lambda: "is reached at" in started.errors() or not started.is_running(),
        10,
        "the stack is up",
    )
    assert "is reached at" in started.errors(), f"the program ended\n{started.tail()}"
    return started

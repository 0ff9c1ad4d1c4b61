"""The table: each comparison, and the rate relative to the kernel's of the same run."""

import platform
import re

HEAD = """# The page of programs

`make programs` runs each program with its real client, which is on the kernel at the other end of a
veth pair: on the kernel's stack, on Slipstack in the program, and on an instance, one after the
other. Where the program is the client, the server is on the kernel.

*Compared* names the data that were compared byte for byte, in the direction of the program: *up* is
what its clients sent. Generators of load have no data of their own to compare: they count answers
or bytes, and those that have a status are checked to be good. Of a name server, an address over UDP
and a long record over TCP are compared, and dnsperf loses no query.

A rate is of one short run, or of the best of a few, on a shared machine with two cores; those on
Slipstack are multiples of the kernel's of the same run. On an idle machine it is accurate to about
a third; where others kept the processors busy, two runs may differ by a factor of four. *Run* has
the date and, where it was measured, how busy others kept them just before. A failure has its
reason.

"""
# A machine of which others use less than this share counts as idle.
IDLE = 0.05
COLUMNS = (
    "| program | version | compared | kernel | in the program | instance | run |\n"
    "|---|---|---|---|---|---|---|\n"
)


def page(rows):
    """`rows`: lines of the table."""
    return f"{HEAD}Linux {platform.release()}.\n\n{COLUMNS}{''.join(rows)}"


def rows_of(text):
    """The table's lines in a page that was written before, by the name of the program."""
    lines = text[text.index(COLUMNS) + len(COLUMNS) :].splitlines(keepends=True)
    return {line.split("|")[1].strip(): line for line in lines}


def written(row):
    """The row's line."""
    checked = next(
        (run["checked"] for mode in row["runs"].values() for run in mode if "checked" in run), ""
    )
    if row.get("absent"):
        cells = [f"not run: {row['absent']}", "", ""]
    else:
        cells = [cell(row, mode) for mode in ("kernel", "inprocess", "instance")]
    all_cells = [row["name"], row["version"], checked, *cells, when(row)]
    return f"| {' | '.join(all_cells)} |\n"


def when(row):
    shares = [run["busy"] for runs in row["runs"].values() for run in runs]
    if not shares:
        return row["on"]
    mean = sum(shares) / len(shares)
    return f"{row['on']}, {'idle' if mean < IDLE else f'{mean:.0%} busy'}"


def line(row):
    if row.get("absent"):
        return f"{row['name']}  not run: {row['absent']}"
    cells = [f"{mode}: {cell(row, mode)}" for mode in row["runs"]]
    return f"{row['name']} {row['version']}  {'   '.join(cells)}"


def best(row, mode):
    return max(
        row["runs"].get(mode, []),
        key=lambda run: run.get("rate", -1.0),
        default={"failed": "not run"},
    )


def cell(row, mode):
    run = best(row, mode)
    bad = [it for it in row["runs"].get(mode, []) if "failed" in it]
    if bad:
        # Without the paths of this run.
        return "fails: " + re.sub(r"/\S*(/release/|/ss-|/tmp/)\S*", "…", bad[0]["failed"]).replace(
            "|", "/"
        )
    rate = run.get("rate")
    if not rate:
        return "works"
    if mode == "kernel":
        return f"{amount(rate)} {run['unit']}"
    base = best(row, "kernel").get("rate")
    return f"{rate / base:.2f} ×" if base else f"{amount(rate)} {run['unit']}"


def amount(rate):
    return (
        f"{rate / 1000:.1f} k" if rate >= 10_000 else f"{rate:.0f}" if rate >= 10 else f"{rate:.2f}"
    )


def failures(rows):
    found = []
    for row in rows:
        if any("failed" in run for run in row["runs"].get("kernel", [])):
            continue
        for mode, runs in row["runs"].items():
            found += [(row["name"], mode, run["failed"]) for run in runs if "failed" in run]
    return found

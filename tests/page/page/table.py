"""The table: each comparison, and the rate relative to the kernel's of the same run."""

import datetime
import platform
import re

HEAD = """# The page of programs

Each program was run by `make programs` with its real client, which is on the kernel at the other
end of a veth pair: on the kernel's stack, on Slipstack in the program, and on an instance, one
after the other. *Compared* says which data were compared byte for byte. A rate is of one short
run on a shared machine with two cores, so it is good to about a third; what fails has its reason.

"""


def page(rows):
    lines = [HEAD, f"Run on {datetime.date.today()}, Linux {platform.release()}.\n\n"]
    lines.append(
        "| program | version | compared | kernel | in the program | instance"
        " |\n|---|---|---|---|---|---|\n"
    )
    for row in rows:
        checked = next(
            (run["checked"] for mode in row["runs"].values() for run in mode if "checked" in run),
            "",
        )
        cells = [cell(row, mode) for mode in ("kernel", "inprocess", "instance")]
        lines.append(f"| {row['name']} | {row['version']} | {checked} | {' | '.join(cells)} |\n")
    return "".join(lines)


def line(row):
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

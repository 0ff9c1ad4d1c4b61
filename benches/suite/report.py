"""Table, JSON and SVG from the raw results."""

import json
import shutil
import statistics
import subprocess

PLACEMENTS = ("kernel", "in-process", "instance")
# Only when asked for: in-process over AF_XDP in place of AF_PACKET.
XDP = "in-process-xdp"
# Only when asked for: canned answers without a TCP, what a server on a packet socket costs beside
# itself.
FLOOR = "floor"
ALL = (*PLACEMENTS, XDP, FLOOR)


def median_of(results, setup, case, placement, key):
    values = [
        r[key]
        for r in results
        if (r["setup"], r["case"], r["placement"]) == (setup, case, placement)
        and r.get(key) is not None
    ]
    return statistics.median(values) if values else None


def summarise(results):
    rows = []
    seen = []
    for r in results:
        if (r["setup"], r["case"]) not in seen:
            seen.append((r["setup"], r["case"]))
    for setup, case in seen:
        row = {"setup": setup, "case": case}
        for placement in ALL:
            row[placement] = {
                key: median_of(results, setup, case, placement, key)
                for key in (
                    "rate",
                    "p50_us",
                    "p99_us",
                    "cpu_us",
                    "idle0",
                    "idle1",
                    "server_kib",
                    "errors",
                )
            }
        rows.append(row)
    return rows


def number(value, digits=0):
    return "–" if value is None else f"{value:,.{digits}f}"


def ratio(row, placement, key):
    ours, kernel = row[placement][key], row["kernel"][key]
    return "–" if not ours or not kernel else f"{ours / kernel:.2f}"


def table(rows):
    lines = [
        (
            "| set-up | case | placement | rate | × kernel | p50 µs | p99 µs | CPU-µs/request | ×"
            " kernel | idle core 0 | idle core 1 | server KiB |"
        ),
        "|---|---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for row in rows:
        for placement in ALL:
            cell = row[placement]
            if cell["rate"] is None:
                continue
            digits = 2 if row["case"].startswith("iperf3") else 0
            lines.append(
                "| "
                + " | ".join(
                    [
                        row["setup"],
                        row["case"],
                        placement,
                        number(cell["rate"], digits),
                        ratio(row, placement, "rate"),
                        number(cell["p50_us"], 1),
                        number(cell["p99_us"], 1),
                        number(cell["cpu_us"], 2),
                        ratio(row, placement, "cpu_us"),
                        number(cell["idle0"], 2),
                        number(cell["idle1"], 2),
                        number(cell["server_kib"]),
                    ]
                )
                + " |"
            )
    return "\n".join(lines) + "\n"


def plot(rows, directory):
    """Rate and processor time relative to the kernel, as bars (gnuplot)."""
    if shutil.which("gnuplot") is None:
        return "no plot: gnuplot is not installed"
    data = directory / "ratios.dat"
    kinds = [
        (kind, placement)
        for kind in ("rate", "cpu_us")
        for placement in ALL[1:]
        if any(ratio(row, placement, kind) != "–" for row in rows)
    ]
    if not kinds:
        return "no plot: nothing was measured beside the kernel"
    with open(data, "w") as out:
        for row in rows:
            values = [ratio(row, placement, kind).replace("–", "NaN") for kind, placement in kinds]
            out.write(f'"{row["setup"]} {row["case"]}" ' + " ".join(values) + "\n")
    charts = ""
    for kind, title in (
        ("rate", "Rate (higher is better)"),
        ("cpu_us", "Whole-machine CPU per request (lower is better)"),
    ):
        bars = [
            f"'{data}' using {column}:xtic(1) title '{placement}'"
            for column, (of, placement) in enumerate(kinds, start=2)
            if of == kind
        ]
        if bars:
            charts += f"set title '{title}'\nplot {', '.join(bars)}\n"
    script = f"""
set terminal svg size 1400,700 font 'sans,12' background '#ffffff'
set output '{directory}/bench.svg'
set style data histograms
set style fill solid 0.8 border -1
set grid y
set xtics rotate by -40 font ',10'
set ylabel 'times the kernel'
set arrow from graph 0, first 1 to graph 1, first 1 nohead dt 2
set multiplot layout 2,1
{charts}"""
    done = subprocess.run(["gnuplot"], input=script, text=True, capture_output=True)
    return done.stderr.strip() or f"plot: {directory}/bench.svg"


def write(results, meta, directory):
    rows = summarise(results)
    (directory / "results.json").write_text(
        json.dumps({"meta": meta, "summary": rows, "raw": results}, indent=1)
    )
    text = table(rows)
    (directory / "results.md").write_text(
        "".join(f"- {key}: {value}\n" for key, value in meta.items()) + "\n" + text
    )
    print(text)
    print(plot(rows, directory))

"""Table, JSON and SVG plots of the matrix, and the figures that have targets."""

import json
import math
import random
import shutil
import statistics
import subprocess

import cells

INTERVAL_DRAWS = 4000
GOODPUT_FLOOR = 0.9


def values(results, cell, pair, key):
    found = [
        r[key]
        for r in results
        if (r["path"], r["condition"], r["pair"]) == (*cell, pair) and "failed" not in r
    ]
    return [value for value in found if value is not None]


def median(found):
    return statistics.median(found) if found else None


def ratio_interval(ours, kernel):
    """95 % interval of the ratio of means, by bootstrap with a seed of its own."""
    if len(ours) < 2 or len(kernel) < 2:
        return None
    draw = random.Random(1)
    mean_of = lambda found: statistics.fmean(draw.choices(found, k=len(found)))  # noqa: E731
    ratios = sorted(mean_of(ours) / max(mean_of(kernel), 1e-9) for _ in range(INTERVAL_DRAWS))
    return ratios[int(0.025 * INTERVAL_DRAWS)], ratios[int(0.975 * INTERVAL_DRAWS)]


def summarise(results):
    rows = []
    for cell in sorted({(r["path"], r["condition"]) for r in results}, key=cells.all_cells().index):
        kernel = values(results, cell, cells.BASELINE, "goodput_mbit")
        for pair in cells.PAIRS:
            goodput = values(results, cell, pair, "goodput_mbit")
            if not goodput:
                continue
            row = {
                "path": cell[0],
                "condition": cell[1],
                "pair": pair,
                "runs": len(goodput),
                "goodput_mbit": statistics.fmean(goodput),
            }
            for key in (
                "retransmitted_share",
                "spurious",
                "segments",
                "short_p50_ms",
                "short_p99_ms",
                "late_p99_us",
            ):
                row[key] = median(values(results, cell, pair, key))
            row["spurious_share"] = row["spurious"] / max(row["segments"], 1)
            row["ratio"] = row["goodput_mbit"] / statistics.fmean(kernel) if kernel else None
            row["interval"] = ratio_interval(goodput, kernel)
            rows.append(row)
    return rows


def verdict(rows):
    """What the targets are about, for the data that we send and for all pairs with us in them."""
    figures = {}
    for name, pairs in (
        ("our sender", ("ours-kernel", "ours-ours")),
        ("all with us", cells.PAIRS[1:]),
    ):
        ratios = [r["ratio"] for r in rows if r["pair"] in pairs and r["ratio"]]
        if ratios:
            figures[f"geometric mean of goodput over the kernel's, {name}"] = geometric_mean(ratios)
    figures[f"cells below {GOODPUT_FLOOR} with their whole interval"] = below_floor(rows)
    for pair in ("kernel-kernel", "ours-kernel"):
        shares = [r["spurious_share"] for r in rows if r["pair"] == pair]
        if shares:
            figures[
                f"spurious retransmissions (D-SACKs per data segment), {pair}"
            ] = statistics.fmean(shares)
    return figures


def below_floor(rows):
    """The cells that are certainly too slow; a sentence where one run a cell leaves no interval to
    judge by."""
    ours = [r for r in rows if r["pair"] != cells.BASELINE]
    judged = [r for r in ours if r["interval"]]
    if not judged:
        return "not judged, one run of a pair has no interval"
    low = [
        f"{r['path']} {r['condition']} {r['pair']}"
        for r in judged
        if r["interval"][1] < GOODPUT_FLOOR
    ]
    return (
        f"{', '.join(low) or 'none'} (of {len(judged)} with an interval;"
        f" {len(ours) - len(judged)} have none)"
    )


def geometric_mean(found):
    return math.exp(statistics.fmean(math.log(max(value, 1e-9)) for value in found))


def jain(rates):
    return (
        sum(rates) ** 2 / (len(rates) * sum(rate * rate for rate in rates)) if any(rates) else 0.0
    )


def document(**parts):
    """JSON with a line for each row and each run."""

    def text(part):
        if not isinstance(part, list):
            return json.dumps(part)
        return "[\n" + ",\n".join(json.dumps(row) for row in part) + "\n]"

    return (
        "{\n"
        + ",\n".join(f"{json.dumps(name)}: {text(part)}" for name, part in parts.items())
        + "\n}\n"
    )


def number(value, digits):
    return "–" if value is None else f"{value:,.{digits}f}"


def table(rows):
    lines = [
        (
            "| wire | condition | sender → receiver | runs | Mbit/s | × kernel | 95 % |"
            " retransmitted | D-SACKs | short p50 ms | short p99 ms |"
        ),
        "|---|---|---|--:|--:|--:|---|--:|--:|--:|--:|",
    ]
    for r in rows:
        interval = "–" if not r["interval"] else f"{r['interval'][0]:.2f}–{r['interval'][1]:.2f}"
        lines.append(
            "| "
            + " | ".join(
                [
                    r["path"],
                    r["condition"],
                    r["pair"].replace("-", " → "),
                    str(r["runs"]),
                    number(r["goodput_mbit"], 2),
                    number(r["ratio"], 2),
                    interval,
                    number(100 * r["retransmitted_share"], 2) + " %",
                    number(r["spurious"], 0),
                    number(r["short_p50_ms"], 0),
                    number(r["short_p99_ms"], 0),
                ]
            )
            + " |"
        )
    return "\n".join(lines) + "\n"


def figure_lines(figures):
    for name, value in figures.items():
        yield f"- {name}: {value:.4f}\n" if isinstance(value, float) else f"- {name}: {value}\n"


def plot(rows, directory):
    if shutil.which("gnuplot") is None:
        return "no plots: gnuplot is not installed"
    said = []
    for key, label, scale in (
        ("ratio", "goodput, times kernel to kernel", 1),
        ("retransmitted_share", "retransmitted, per cent", 100),
        ("short_p99_ms", "99th percentile of short transfers, ms", 1),
    ):
        pairs = [
            pair
            for pair in cells.PAIRS
            if any(r["pair"] == pair and r[key] is not None for r in rows)
        ]
        if not pairs:
            said.append(f"no plot of {key}: nothing was measured for it")
            continue
        data = directory / f"{key}.dat"
        with open(data, "w") as out:
            for cell in dict.fromkeys((r["path"], r["condition"]) for r in rows):
                found = {r["pair"]: r[key] for r in rows if (r["path"], r["condition"]) == cell}
                columns = [
                    "NaN" if found.get(pair) is None else f"{found[pair] * scale:g}"
                    for pair in pairs
                ]
                out.write(f'"{" ".join(cell)}" {" ".join(columns)}\n')
        plots = ", ".join(
            f"'{data}' using {column}:xtic(1) title '{pair}'"
            for column, pair in enumerate(pairs, start=2)
        )
        script = f"""set terminal svg size 1400,600 font 'sans,12' background '#ffffff'
set output '{directory}/{key}.svg'
set style data histograms
set style fill solid 0.8 border -1
set grid y
set xtics rotate by -40 font ',10'
set title '{label}'
plot {plots}
"""
        done = subprocess.run(["gnuplot"], input=script, text=True, capture_output=True)
        said.append(done.stderr.strip() or f"plot: {directory}/{key}.svg")
        data.unlink()
    return "\n".join(said)


def write(results, fairness, meta, directory):
    rows = summarise(results)
    figures = verdict(rows)
    for name, rates in fairness.items():
        figures[f"Jain's index of two flows, {name}"] = jain(rates)
        meta[f"Mbit/s of the two flows, {name}"] = [round(rate, 2) for rate in rates]
    (directory / "results.json").write_text(
        document(meta=meta, figures=figures, summary=rows, raw=results)
    )
    text = table(rows) + "\n" + "".join(figure_lines(figures))
    head = "".join(f"- {key}: {value}\n" for key, value in meta.items())
    (directory / "results.md").write_text(head + "\n" + text)
    print(text)
    print(plot(rows, directory))

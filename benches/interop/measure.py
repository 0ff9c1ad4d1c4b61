"""One run of one cell: a bulk transfer, then many short ones, over the same wire."""

import json
import pathlib
import sys
from dataclasses import dataclass

import cells
from topology import access_options, addresses, until

PORT = 5210
CONGESTION = "cubic"
SHORT_BYTES = 65_536
SHORT_COUNT = 120
SHORT_WORKERS = 6
SHORT_SECONDS_MAX = 12
PROGRAM = str(pathlib.Path(__file__).with_name("transfer.py"))
PYTHON = "/usr/bin/python3"


def run_cell(topology, path, condition, pair, seed, pcap=None):
    """→ figures of the run; raises RuntimeError or AssertionError when there are none. What the
    link draws follows from the seed: each pair of stacks meets the same wires."""
    sender, receiver = pair.split("-")
    layout = cells.CONDITIONS[condition].layout
    address = ",".join(addresses("sender", sender, layout).values())
    words, data_words = cells.link_words(path, condition)
    words += ["--seed", str(seed), *access_options(layout, sender, receiver)]
    wires = Wires(layout, words, data_words)
    server = start_server(topology, sender, layout, address)
    try:
        bulk, wire = over_wires(
            topology,
            wires,
            receiver,
            pcap,
            ["bulk", address, PORT, cells.seconds_of(path)],
            cells.seconds_of(path) + 45,
        )
        short, _ = over_wires(
            topology,
            wires,
            receiver,
            None,
            ["short", address, PORT, SHORT_COUNT, SHORT_BYTES, SHORT_WORKERS, SHORT_SECONDS_MAX],
            SHORT_SECONDS_MAX + 60,
        )
    finally:
        topology.stop(server)
    data = wire["directions"][1]
    times = short["times"]
    return {
        "seed": seed,
        "goodput_mbit": bulk["bytes"] * 8e-6 / bulk["seconds"],
        "series_mbit": [count * 8e-6 for count in bulk["series"]],
        "retransmitted_share": data["tcp_retransmitted_bytes"] / max(data["tcp_bytes"], 1),
        "segments": data["tcp_segments"],
        "retransmitted": data["tcp_retransmitted_segments"],
        "spurious": wire["directions"][0]["tcp_duplicate_sacks"],
        "dropped": sum(value for name, value in data.items() if name.startswith("dropped_")),
        "late_p99_us": data["late_p99_ns"] / 1e3,
        "short_p50_ms": quantile(times, 0.5),
        "short_p99_ms": quantile(times, 0.99),
        "short_count": len(times),
        "short_failures": short["failures"],
    }


def quantile(times, share):
    if not times:
        return None
    return times[min(int(len(times) * share), len(times) - 1)] * 1e3


@dataclass(frozen=True)
class Wires:
    """How the hosts meet, and what the wires between them do with the frames."""

    layout: str
    words: list
    data_words: list


def start_server(topology, stack, layout, address, port=PORT):
    server = topology.start_program(
        "sender", stack, layout, [PYTHON, PROGRAM, "serve", address, str(port), CONGESTION]
    )
    try:
        is_over = lambda: "ready" in server.output() or not server.is_running()  # noqa: E731
        until(is_over, 15, "the server listens")
    except AssertionError:
        topology.stop(server)
        raise
    if not server.is_running():
        raise RuntimeError(f"the server ended: {server.tail()}")
    return server


def over_wires(topology, wires, stack, pcap, client_words, seconds):
    """Runs a client over fresh wires; → (what it printed, what the wires report)"""
    count = cells.LAYOUTS[wires.layout]
    reports = [topology.folder / f"link{number}.json" for number in range(count)]
    links, client = [], None
    try:
        for number, report in enumerate(reports):
            report.unlink(missing_ok=True)
            link = topology.start_link(wires.words, wires.data_words, report, number, pcap)
            # Captures are of the first wire.
            pcap = None
            links.append(link)
        words = [PYTHON, PROGRAM, *map(str, client_words)]
        client = topology.start_program("receiver", stack, wires.layout, words)
        output = client.finish(seconds)
    finally:
        for process in (*([client] if client else []), *links):
            topology.stop(process)
    return json.loads(output), together([json.loads(report.read_text()) for report in reports])


def together(reports):
    """One report of several wires: sums of their counts, the longest of their delays."""
    directions = []
    for each in zip(*(report["directions"] for report in reports)):
        names = [name for name, value in each[0].items() if not isinstance(value, str)]
        total = {
            name: (max if name.startswith("late_") else sum)(one[name] for one in each)
            for name in names
        }
        directions.append(total)
    return {"directions": directions}


def run_fair(topology, first, seconds, path="100M-40ms", condition="loss-0"):
    """Two flows over one bottleneck to the kernel: from `first` and from the kernel. → Mbit/s of
    both"""
    words, data_words = cells.link_words(path, condition)
    report = topology.folder / "link.json"
    servers, clients = [], []
    link = topology.start_link(words, data_words, report)
    try:
        for number, stack in enumerate((first, "kernel")):
            (address,) = addresses("sender", stack, "plain").values()
            servers.append(start_server(topology, stack, "plain", address, PORT + number))
        for number, stack in enumerate((first, "kernel")):
            (address,) = addresses("sender", stack, "plain").values()
            words = [PYTHON, PROGRAM, "bulk", address, str(PORT + number), str(seconds)]
            clients.append(topology.start_program("receiver", "kernel", "plain", words))
        outputs = [json.loads(client.finish(seconds + 45)) for client in clients]
    finally:
        for process in (*clients, *servers, link):
            topology.stop(process)
    return [output["bytes"] * 8e-6 / output["seconds"] for output in outputs]


if __name__ == "__main__":
    sys.exit("run benches/interop, not this file")

"""The matrix: which wires, which conditions on them, which stacks at their ends."""

from dataclasses import dataclass

# name → (bits per second, round trip in milliseconds)
PATHS = {
    "100M-40ms": (100_000_000, 40),
    "1G-10ms": (1_000_000_000, 10),
    "10M-200ms": (10_000_000, 200),
}
# Who sends the data → who receives it.
PAIRS = ("kernel-kernel", "ours-kernel", "kernel-ours", "ours-ours")
BASELINE = "kernel-kernel"
FRAME_LEN = 1514
# How the hosts meet → how many wires of the cell's kind are between them.
LAYOUTS = {"plain": 1, "vlan": 1, "two": 2}


@dataclass(frozen=True)
class Condition:
    """What is bad about a wire. `queue` is in bandwidth-delay products."""

    name: str
    words: tuple = ()
    queue: float = 1.0
    reorder_share: int = 0  # per cent, late by up to an eighth of the round trip
    police_share: float = 0  # of the rate; the burst is a quarter of a bandwidth-delay product
    layout: str = "plain"  # how both hosts meet; one of LAYOUTS


CONDITIONS = {
    condition.name: condition
    for condition in (
        Condition("loss-0"),
        Condition("loss-0.1", ("loss=0.1%",)),
        Condition("loss-1", ("loss=1%",)),
        Condition("loss-5", ("loss=5%",)),
        Condition("bursts", ("burst-loss=1%:8",)),
        Condition("reorder-5", reorder_share=5),
        Condition("policer", police_share=0.5),
        Condition("shallow", queue=0.1),
        Condition("deep", queue=4.0),
        Condition("vlan", ("loss=0.1%",), layout="vlan"),
        Condition("two-links", ("loss=0.1%",), layout="two"),
    )
}

REPRESENTATIVE = (
    [("100M-40ms", name) for name in CONDITIONS if name != "deep"]
    + [("1G-10ms", "loss-0"), ("1G-10ms", "loss-0.1")]
    + [("10M-200ms", "loss-1"), ("10M-200ms", "deep")]
)


def all_cells():
    return [(path, condition) for path in PATHS for condition in CONDITIONS]


def link_words(path, condition):
    """→ (words for both directions, words for the data's direction only)"""
    rate, round_trip_ms = PATHS[path]
    chosen = CONDITIONS[condition]
    product = rate * round_trip_ms // 8000
    both = [f"rate={rate}", f"delay={round_trip_ms * 500}us", *chosen.words]
    both.append(f"queue={max(int(product * chosen.queue), 10 * FRAME_LEN)}")
    if chosen.reorder_share:
        both.append(f"reorder={chosen.reorder_share}%:{round_trip_ms * 125}us")
    data = []
    if chosen.police_share:
        data.append(f"police={int(rate * chosen.police_share)}:{max(product // 4, 10 * FRAME_LEN)}")
    return both, data


def seconds_of(path):
    """Long enough for congestion avoidance to show: a hundred round trips or so."""
    return {"100M-40ms": 8, "1G-10ms": 6, "10M-200ms": 16}[path]

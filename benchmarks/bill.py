"""From what a record takes to what it costs, and the tables of docs/scale.md and docs/dataflow.md."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from typing import Any

#: A national feed: records a day, states, steps a day of a realization.
RECORDS, STATES, STEPS = 10**9, 100, 1440


@dataclass(frozen=True)
class Prices:
    """US dollars, and how well machines are used. Assumptions: list prices differ by region and change."""

    batch_vcpu_hour: float = 0.056
    batch_shuffle_gb: float = 0.011
    stream_vcpu_hour: float = 0.069
    stream_gb: float = 0.018
    memory_gb_hour: float = 0.003557
    pubsub_gb: float = 0.04
    memory_gb_per_vcpu: float = 4.0
    #: Share of the time in which a worker's processor works.
    used: float = 0.6
    #: Work of a vCPU, as a share of that of a core of the machine that measured.
    vcpu: float = 1.0


@dataclass(frozen=True)
class Bill:
    """What a number of records takes, and costs."""

    vcpu_hours: float
    shuffle_gb: float
    dollars: dict[str, float]

    @property
    def total(self) -> float:
        return sum(self.dollars.values())

    @property
    def largest(self) -> str:
        return max(self.dollars, key=lambda name: self.dollars[name])


def bill(path: str, row: dict[str, float], records: float, prices: Prices) -> Bill:
    """The cost of so many records at what `row` measured."""
    hours = records * row["cpu_us"] / 1e6 / 3600 / prices.used / prices.vcpu
    shuffled = records * row["shuffle_bytes"] / 1e9
    batch = path == "bounded"
    dollars = {
        "processor": hours * (prices.batch_vcpu_hour if batch else prices.stream_vcpu_hour),
        "memory": hours * prices.memory_gb_per_vcpu * prices.memory_gb_hour,
        "shuffle": shuffled * (prices.batch_shuffle_gb if batch else prices.stream_gb),
    }
    if not batch:
        # A message is published and delivered.
        dollars["Pub/Sub"] = 2 * records * row["message_bytes"] / 1e9 * prices.pubsub_gb
    return Bill(hours, shuffled, dollars)


def table(head: list[str], rows: list[list[str]]) -> str:
    lines = ["| " + " | ".join(head) + " |", "|" + " ---: |" * len(head)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])


def sections(measured: dict[str, Any], prices: Prices) -> dict[str, str]:
    """The tables, by the name of their place in the docs."""
    made = {}
    rows = measured["bounded"]
    made["bounded"] = table(
        ["S", "K", "T", "records", "shuffled bytes per record", "MB once", "processor µs per record"],
        [
            _cells(r, f"{r['shuffle_bytes']:.0f}", f"{r['once_bytes'] / 1e6:.1f}", f"{r['cpu_us']:.1f}")
            for r in rows
        ],
    )
    head = ["S", "K", "T", "records", "shuffled bytes per record", "state bytes per realization"]
    made["stream"] = table(
        [*head, "processor µs per record", "of it state µs"],
        [
            _cells(r, *(f"{r[n]:.0f}" for n in ("shuffle_bytes", "state_bytes", "cpu_us", "state_us")))
            for r in measured["stream"]
        ],
    )
    made["estimate"] = table(
        ["S", "bytes of the sums of a group", "mom, s", "fast, s"],
        [
            [f"{r['S']:.0f}", f"{r['bytes']:,.0f}", f"{r['mom']:.2f}", f"{r['fast']:.2f}"]
            for r in measured["estimates"]
        ],
    )
    made["prices"] = table(
        ["assumption", "value"], [[f"`--{n.replace('_', '-')}`", f"{v:g}"] for n, v in asdict(prices).items()]
    )
    made["cost"] = _cost_table(measured, prices)
    made["national"] = _national(measured, prices)
    return made


def _cells(row: dict[str, float], *more: str) -> list[str]:
    return [f"{row['S']:.0f}", f"{row['K']:.0f}", f"{row['T']:.0f}", f"{row['K'] * row['T']:,.0f}", *more]


def _by_states(measured: dict[str, Any], path: str) -> list[dict[str, float]]:
    middle = measured["middle"][path]
    return [r for r in measured[path] if (r["K"], r["T"]) == (middle["K"], middle["T"])]


def _cost_table(measured: dict[str, Any], prices: Prices) -> str:
    rows = []
    for path, name in (("bounded", "files"), ("stream", "stream")):
        for row in _by_states(measured, path):
            found = bill(path, row, 1e9, prices)
            share = found.dollars[found.largest] / found.total
            numbers = [row["S"], found.vcpu_hours, found.shuffle_gb, found.total]
            rows.append([name, *(f"{n:,.0f}" for n in numbers), f"{found.largest} ({share:.0%})"])
    return table(["path", "S", "vCPU hours", "GB shuffled", "US dollars", "most of it"], rows)


def _national(measured: dict[str, Any], prices: Prices) -> str:
    realizations = RECORDS / STEPS
    lines = [
        f"{RECORDS:,} records a day, S = {STATES}, {STEPS:,} steps a day, so {realizations:,.0f} "
        f"realizations and {RECORDS / 86400:,.0f} records a second.",
        "",
    ]
    for path, name in (("bounded", "From files, once a day"), ("stream", "As a stream")):
        [row] = [r for r in _by_states(measured, path) if r["S"] == STATES]
        found = bill(path, row, RECORDS, prices)
        parts = ", ".join(f"{what} {cost:,.0f}" for what, cost in found.dollars.items())
        lines.append(
            f"- **{name}**: {found.vcpu_hours:,.0f} vCPU hours ({found.vcpu_hours / 24:,.0f} vCPUs all day), "
            f"{found.shuffle_gb:,.0f} GB shuffled, {found.total:,.0f} dollars a day, of which {parts}. The "
            f"bottleneck is the **{found.largest}**."
        )
    [estimate] = [r for r in measured["estimates"] if r["S"] == STATES]
    [row] = [r for r in _by_states(measured, "stream") if r["S"] == STATES]
    groups = {name: 60 * prices.used * prices.vcpu / estimate[name] for name in ("mom", "fast")}
    return "\n".join(
        [
            *lines,
            f"- **State of the stream**: {realizations * row['state_bytes'] / 1e9:,.1f} GB for all "
            f"realizations, and {row['group_bytes'] / 1e6:,.1f} MB for each group.",
            f"- **A refresh** estimates each group anew: {estimate['mom']:.2f} s by `mom`, "
            f"{estimate['fast']:.2f} s by `fast`. With `refresh: 60s` one vCPU keeps up with "
            f"{groups['mom']:,.0f} and {groups['fast']:,.0f} groups.",
        ]
    )


def rewritten(text: str, made: dict[str, str]) -> str:
    """A page with the tables between `<!-- scale:NAME -->` and `<!-- end -->` made anew.

    >>> rewritten("a <!-- scale:cost -->old<!-- end --> b", {"cost": "new"})
    'a <!-- scale:cost -->\\nnew\\n<!-- end --> b'
    """

    def again(found: re.Match[str]) -> str:
        return f"<!-- scale:{found[1]} -->\n{made[found[1]]}\n<!-- end -->"

    return re.sub(r"<!-- scale:(\w+) -->.*?<!-- end -->", again, text, flags=re.S)

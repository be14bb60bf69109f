"""Cases of the Beam engine: configs, transforms of bounded records, and streams."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import timezone
from pathlib import Path
from typing import Any

import apache_beam as beam
import numpy as np
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.testing.test_stream import TestStream as Arrivals
from apache_beam.transforms.window import TimestampedValue

import aggmc_beam as am
from aggmc_beam.beam import EstimateTransitions, Stream

from . import data, doors, tables
from .case import SEARCHED, Cases
from .special import config, grouped, rows, table

BEAM = Cases()
add = BEAM.add
STATES = data.STATES[:3]
#: What pipelines that run in this process have put out.
FOUND: dict[str, list[Any]] = {}


def keep(element: Any, name: str) -> None:
    FOUND.setdefault(name, []).append(element)


def transform(**options: Any) -> EstimateTransitions:
    known = {"noise": am.Binomial(0.8), "population": 300, "estimator": "mom", "replicates": 6}
    return EstimateTransitions(STATES, **{**known, **options})


def gathered(pipeline: beam.Pipeline, source: Any, made: EstimateTransitions) -> doors.Record:
    """What a transform makes of a source: the last estimate of each group, cell and window, the reasons of
    what was rejected, and the ledger of a stream."""
    FOUND.clear()
    with pipeline as p:
        found = p | source | made
        for kind in ("estimates", "rejected", "health"):
            if getattr(found, kind) is not None:
                _ = getattr(found, kind) | kind >> beam.Map(keep, kind)
    estimates = sorted(FOUND.get("estimates", []), key=lambda e: e.refresh)
    record = doors.read_out(e.to_dict() for e in estimates)
    record["points"]["rejected"] = sorted(
        json.dumps([r["record"], r["reason"]], default=str, sort_keys=True) for r in FOUND.get("rejected", [])
    )
    if "health" in FOUND:
        record["points"]["ledger"] = FOUND["health"][-1]["ledger"]
    return record


def bounded(items: Sequence[Any], **options: Any) -> doors.Record:
    return gathered(beam.Pipeline("FnApiRunner"), beam.Create(items), transform(**options))


def streamed(arrivals: Any, **options: Any) -> doors.Record:
    pipeline = beam.Pipeline("BundleBasedDirectRunner", options=PipelineOptions(["--streaming"]))
    options = {"block": 5, "stream": Stream(), **options}
    return gathered(pipeline, arrivals.advance_watermark_to_infinity(), transform(**options))


def lists(found: list[tables.Row]) -> list[tables.Row]:
    return tables.lay_out(found, STATES, "list")


def rng() -> np.random.Generator:
    return np.random.default_rng(4)


def dirty(found: list[tables.Row]) -> list[tables.Row]:
    """With gaps, repetitions and contradictions, in any order."""
    found = tables.repeat_some(tables.drop_some(found, rng()), rng())
    return tables.shuffle(tables.contradict(STATES)(found, rng()), rng())


def beam_run(tmp: Path, found: list[tables.Row], format: str, layout: str, parts: int = 3, **more: Any):
    """`aggmc run CONFIG --engine beam` on files."""
    laid = tables.lay_out(found, STATES, layout)
    if format == "csv":
        first = {"wide": "home", "list": "counts", "long": "count"}[layout]
        laid = tables.damage(laid, rng(), tables.WRONG, first)
    made = table(laid, layout=layout, group_by=more.get("group_by", ()), parts=parts)
    tables.save(made, tmp / "data", "part", format)
    input = {"layout": "long"} if layout == "long" else {}
    plain = config(str(tmp / "data" / "*"), input=input, **more)
    return doors.run(plain, tmp, "--engine", "beam")


@add("beam run: CSV in groups and a cycle, with dirt")
def _(tmp: Path) -> doors.Record:
    found = dirty(grouped(rows(K=8, T=36, period=4)))
    return beam_run(tmp, found, "csv", "wide", chain={"cycle": 4}, group_by=["region"])


@add("beam run: Parquet lists in windows, shuffled")
def _(tmp: Path) -> doors.Record:
    found = tables.shuffle(rows(), rng())
    return beam_run(tmp, found, "parquet", "list", chain={"window": {"size": 20, "every": 10}})


@add("beam run: long JSON lines per step, with dirt")
def _(tmp: Path) -> doors.Record:
    found = tables.shuffle(tables.drop_some(rows(K=24, T=6), rng()), rng())
    return beam_run(tmp, found, "jsonl", "long", chain="per-step")


@add("beam run: neat CSV, stationary", SEARCHED)
def _(tmp: Path) -> doors.Record:
    return beam_run(tmp, rows(), "csv", "list", parts=1, estimator="gmm")


@add("beam rows: dictionaries in groups and a cycle, with dirt")
def _(_: Path) -> doors.Record:
    found = lists(dirty(grouped(rows(K=8, T=36, period=4))))
    wrong = [{**found[0], "counts": [1, 2]}, {**found[0], "region": None}, {**found[1], "time": 1.5}, "{"]
    return bounded([*found, *wrong], chain=am.Cycle(4), group_by=["region"])


@add("beam rows: rows with a column for each state, per step")
def _(_: Path) -> doors.Record:
    made = [
        beam.Row(realization=r["realization"], time=r["time"], a=r["home"], b=r["work"], c=r[STATES[2]])
        for r in rows(K=24, T=6)
    ]
    return bounded(made, chain="per-step", counts=["a", "b", "c"])


@add("beam rows: JSON text, arrays of records and time stamps in windows")
def _(_: Path) -> doors.Record:
    made = [{**r, "time": tables.moment(r["time"])} for r in lists(rows())]
    text = [json.dumps(r) for r in made[:100]] + [json.dumps(made[100:])]
    return bounded(text, chain=am.Window(20, 10), step="1h")


@add("beam rows: a population for each realization")
def _(_: Path) -> doors.Record:
    made = lists([{**r, "people": 300 + 30 * r["realization"]} for r in rows(vary=True)])
    return bounded(made, population_column="people", estimator="simplex")


@add("stream: repeated and broken records in any order")
def _(_: Path) -> doors.Record:
    found = tables.shuffle(lists(rows(K=4, T=30)), rng())
    stream = Arrivals()
    for i in range(0, len(found), 25):
        stream = stream.add_elements([*found[i : i + 25], *found[max(0, i - 9) : i], "{no JSON"])
    return streamed(stream)


@add("stream: groups and a cycle")
def _(_: Path) -> doors.Record:
    found = tables.shuffle(lists(grouped(rows(K=8, T=24, period=4))), rng())
    stream = Arrivals().add_elements(found[:120]).advance_processing_time(10**10).add_elements(found[100:])
    return streamed(stream, chain=am.Cycle(4), group_by=["region"])


@add("stream: windows with records that come late and too late")
def _(_: Path) -> doors.Record:
    start, hour = int(tables.START.replace(tzinfo=timezone.utc).timestamp()), 3600
    found = lists(rows(K=3, T=40))
    made = [
        TimestampedValue({**r, "time": tables.moment(r["time"])}, start + hour * r["time"]) for r in found
    ]
    # Realizations follow each other: step 0 of two of them is late, steps 1 and 2 of the first too late.
    late, too_late = [made[0], made[40]], made[1:3]
    kept = [m for m in made if m not in (*late, *too_late)]
    first = [m for m in kept if m.timestamp < start + 20 * hour]
    stream = Arrivals().add_elements(first).advance_watermark_to(start + 23 * hour).add_elements(late)
    stream = stream.add_elements([m for m in kept if m not in first])
    stream = stream.advance_watermark_to(start + 34 * hour).add_elements(too_late)
    return streamed(stream, chain=am.Window(20), step="1h", stream=Stream(allowed_lateness="5h"))


@add("stream: a realization that was forgotten")
def _(_: Path) -> doors.Record:
    found = [r for t in range(30) for r in lists(rows(K=2, T=30)) if r["time"] == t]

    def at(part: Sequence[Any], hours: int) -> list[Any]:
        return [TimestampedValue(r, 3600 * hours) for r in part]

    stream = Arrivals().add_elements(at(found[:40], 0)).advance_watermark_to(3 * 3600)
    stream = stream.add_elements(at(found[30:44], 3)).add_elements(at(found[44:], 3))
    return streamed(stream, stream=Stream(state_ttl="2h"))

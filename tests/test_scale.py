"""The instruments of `benchmarks/scale.py`, on pipelines whose bytes are known."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import apache_beam as beam
import pytest
from apache_beam import coders
from apache_beam.transforms.userstate import BagStateSpec

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"


@pytest.fixture(scope="module")
def scale():
    sys.path.insert(0, str(BENCHMARKS))
    try:
        yield runpy.run_path(str(BENCHMARKS / "scale.py"))
    finally:
        sys.path.remove(str(BENCHMARKS))


class Keep(beam.DoFn):
    SEEN = BagStateSpec("seen", coders.BytesCoder())

    def process(self, element, seen=beam.DoFn.StateParam(SEEN)):  # noqa: B008
        seen.add(element[1])


def test_bytes_are_counted_where_they_are_grouped_or_kept(scale):
    seen, state = {}, {}
    with scale["watched"](seen), scale["kept"](state), beam.Pipeline("FnApiRunner") as pipeline:
        pairs = pipeline | beam.Create([("k", b"12345"), ("l", b"1"), ("k", b"123")], reshuffle=False)
        pairs = pairs | beam.Map(lambda x: x).with_output_types(tuple[str, bytes])
        _ = pairs | "Group" >> beam.GroupByKey()
        _ = pairs | "Keep" >> beam.ParDo(Keep())
    # Of each element: its time 8, how many windows 4, the pane 1, the key with its length 2, the value.
    each = 8 + 4 + 1 + 2
    assert seen["metrics"] == {name: {"elements": 3, "bytes": 3 * each + 9} for name in ("Group", "Keep")}
    assert {key: len(data) for (_, _, key), data in state.items()} == {b"\x01k": 6 + 4, b"\x01l": 2}


def test_files_and_streams_are_measured_through_their_pipelines(scale):
    found = scale["watch"]("stream", 3, 8, 6)
    # Two records of three counts and the covered steps, with names and lengths.
    assert 30 < found["state_bytes"] < 300
    assert found["group_bytes"] > 0
    assert found["shuffle_bytes"] > 8 * 6 * 3
    assert scale["watch"]("bounded", 3, 8, 6)["shuffle_bytes"] > 8 * 6 * 3


def test_a_bill_is_what_prices_say(scale):
    bill = scale["sections"].__globals__["bill"]
    prices = scale["Prices"](used=0.5, vcpu=2, memory_gb_hour=0.01)
    row = {"cpu_us": 36.0, "shuffle_bytes": 200.0, "message_bytes": 100.0}
    found = bill("stream", row, 1e9, prices)
    assert found.vcpu_hours == pytest.approx(10)
    assert found.dollars == pytest.approx(
        {"processor": 0.69, "memory": 0.4, "shuffle": 200 * 0.018, "Pub/Sub": 200 * 0.04}
    )
    assert found.largest == "Pub/Sub"
    assert "Pub/Sub" not in bill("bounded", row, 1e9, prices).dollars


def test_pages_have_a_place_for_every_table(scale):
    pages = [BENCHMARKS.parent / "docs" / name for name in ("scale.md", "dataflow.md")]
    text = "".join(page.read_text(encoding="utf-8") for page in pages)
    names = ("bounded", "stream", "estimate", "prices", "cost", "national")
    again = scale["rewritten"](text, dict.fromkeys(names, "NEW"))
    assert again.count("\nNEW\n") == 6
    assert scale["rewritten"](again, dict.fromkeys(names, "NEW")) == again

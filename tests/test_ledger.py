"""Every row that enters is in exactly one of used, duplicate, rejected, late: on every engine."""

import json
from contextlib import nullcontext
from unittest import mock

import dirty
import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from aggmc_beam.config import read_config
from aggmc_beam.errors import InputError
from aggmc_beam.ledger import MIN_SHARED, Ledger, Unbalanced, check_rejected
from aggmc_beam.local import blocks, engine, output, run, tidy

FEEDS = {
    "seed": st.integers(0, 2**32 - 1),
    "layout": st.sampled_from(["wide", "long"]),
    "suffix": st.sampled_from(["csv", "jsonl", "parquet"]),
    "grouped": st.booleans(),
    "absent": st.sampled_from(["zero", "missing"]),
}


def local(feed, directory, parts=1, **more):
    directory.mkdir(parents=True)
    return run(read_config(feed.config(feed.write(directory, parts), **more)))


@settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(values=st.sampled_from([1, 20, 1 << 20]), parts=st.integers(1, 3), **FEEDS)
def test_the_local_engine_accounts_for_every_row(tmp_path_factory, values, parts, **shape):
    feed = dirty.make(**shape)
    with mock.patch.multiple(engine, HELD_VALUES=values, BLOCK_VALUES=values):
        result = local(feed, tmp_path_factory.mktemp("ledger") / "in", parts)
    expected, _ = dirty.account(feed)
    assert result.ledger["rows"] == expected.check().to_dict()
    told = [r.reason for r in result.rejections()]
    conflicts = [reason for reason in told if "the first record was kept" in reason]
    assert len(told) - len(conflicts) == expected.rejected
    if feed.layout == "wide":
        counts = [Ledger.of(e.counts) for e in result.estimates]
        total = sum(counts, Ledger())
        assert (total.used, total.duplicate) == (expected.used, expected.duplicate)
        if not feed.grouped:
            assert total == expected


@settings(max_examples=15, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(again=st.booleans(), **FEEDS)
def test_runs_that_resume_account_for_their_own_rows(tmp_path_factory, again, **shape):
    whole = dirty.make(**shape)
    place = tmp_path_factory.mktemp("resume")
    half = len(whole.rows) // 2
    days = [whole.rows[:half], whole.rows[half:], *([whole.rows] if again else [])]
    known, used = set(), 0
    for number, rows in enumerate(days):
        feed = dirty.Feed(rows, whole.layout, whole.suffix, whole.grouped, whole.absent)
        resume = {"input": {"resume": str(place / "moments.aggmc")}} if number else {}
        try:
            result = local(feed, place / str(number), **resume)
        except InputError as error:  # half of the rows may hold no pair
            assume("one step apart" not in str(error))
            raise
        expected, known = dirty.account(feed, known)
        assert result.ledger["rows"] == expected.to_dict()
        used += expected.used
        if whole.layout == "wide":
            assert result.ledger["records"] == used
        result.save(place / "moments.aggmc")


CASES = [
    {"seed": 1, "layout": "wide", "suffix": "csv", "grouped": True},
    {"seed": 2, "layout": "long", "suffix": "jsonl", "absent": "missing"},
    {"seed": 3, "layout": "long", "suffix": "parquet", "grouped": True},
]


@pytest.mark.parametrize("shape", CASES, ids=lambda s: f"{s['layout']}-{s['suffix']}")
def test_a_beam_run_has_the_same_ledger(shape, tmp_path):
    from aggmc_beam.beam import run as beam_run

    feed = dirty.make(**shape)
    (tmp_path / "in").mkdir()
    plain = feed.config(feed.write(tmp_path / "in", 3), output={"directory": str(tmp_path / "out")})
    beam_run.run(read_config(plain), plain)
    found = json.loads((tmp_path / "out" / output.RUN).read_text())["ledger"]
    assert found["rows"] == dirty.account(feed)[0].to_dict()


@pytest.mark.parametrize("grouped", [False, True])
def test_a_stream_has_the_same_ledger(grouped):
    import apache_beam as beam
    import collected
    from apache_beam.options.pipeline_options import PipelineOptions
    from apache_beam.testing.test_stream import TestStream as Arrivals

    from aggmc_beam.beam import EstimateTransitions

    feed = dirty.make(7, grouped=grouped)
    plain = feed.config("unused", stream={"refresh": "60s"}, engine="beam", uncertainty={"block": 5})
    pubsub = {"subscription": "projects/p/subscriptions/s"}
    plain["input"] = {"pubsub": pubsub, "columns": {"counts": dirty.STATES}}
    messages = [json.dumps({c: row[c] for c in feed.columns}) for row in feed.rows]
    half = len(messages) // 2
    stream = Arrivals().add_elements(messages[:half]).advance_processing_time(120)
    stream = stream.add_elements(messages[half:]).advance_watermark_to_infinity()
    streaming = PipelineOptions(["--streaming"])
    with beam.Pipeline("BundleBasedDirectRunner", options=streaming) as pipeline:
        found = pipeline | stream | EstimateTransitions.from_config(read_config(plain))
        _ = found.health | beam.Map(collected.keep, "ledger")
        _ = found.rejected | "Rejected" >> beam.Map(collected.keep, "ledger/rejected")
    health, rejected = collected.FOUND.pop("ledger"), collected.FOUND.pop("ledger/rejected")
    expected = dirty.account(feed)[0]
    assert health[-1]["ledger"] == expected.check().to_dict()
    conflicts = [r for r in rejected if "the first record was kept" in r["reason"]]
    assert len(rejected) - len(conflicts) == expected.rejected


@pytest.mark.parametrize("layout", ["wide", "long"])
def test_a_run_that_loses_a_row_fails(layout, tmp_path):
    feed = dirty.make(5, layout)
    part = tidy.Tidy.part
    whole = blocks.BlockReader._block

    def lossy(self, held):
        number, one = held[0]
        return whole(self, [(number, part(one, np.arange(1, len(one)))), *held[1:]])

    patch = mock.patch.object(blocks.BlockReader, "_block", lossy)
    with patch, pytest.raises(Unbalanced, match="1 row is missing"):
        local(feed, tmp_path / "in")


def test_a_ledger_adds_up_with_what_came_late():
    assert Ledger(10, 6, 1, 1, 2).check().missing == 0
    for wrong in (Ledger(10, 6, 1, 1, 3), Ledger(10, 6, 1, 2, 2), Ledger(10, 6, 2, 1, 2), Ledger(3, 4, -1)):
        with pytest.raises(Unbalanced):
            wrong.check()


@pytest.mark.parametrize(
    ("rejected", "read", "limit", "complete", "refused"),
    [
        (10**6, 10**6, None, True, False),
        (5, 100, 5, True, False),
        (6, 100, 5, False, True),
        (0, 0, 0, True, False),
        (1, 1, 0, True, True),
        (5, 100, 0.05, True, False),
        (6, 100, 0.05, True, True),
        (MIN_SHARED - 1, MIN_SHARED - 1, 0.5, False, False),
        (MIN_SHARED, MIN_SHARED, 0.5, False, True),
        (MIN_SHARED, MIN_SHARED, 0.5, True, True),
        (2, 2, 1.0, True, False),
    ],
)
def test_rejected_rows_are_compared_with_a_number_or_once_there_are_enough_with_a_share(
    rejected, read, limit, complete, refused
):
    with pytest.raises(InputError, match="more than max_rejected") if refused else nullcontext():
        check_rejected(rejected, read, limit, complete)


def test_the_reasons_of_rejections_are_told_where_they_are_known():
    with pytest.raises(InputError, match="the commonest reasons: 3 x no count"):
        check_rejected(3, 4, 1, reasons=lambda: "3 x no count")
    with pytest.raises(InputError, match="`aggmc check` and the dead-letter output show them"):
        check_rejected(3, 4, 1)

"""SumsCombineFn: records of any kind, in any window and key, to the sums that `am.estimate` is made from."""

import dataclasses
import inspect
import json
from collections import namedtuple
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pytest
from apache_beam.io.gcp.pubsub import PubsubMessage
from apache_beam.metrics import MetricsFilter
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.testing.test_stream import TestStream as Arrivals
from apache_beam.testing.util import assert_that, equal_to
from apache_beam.transforms import trigger, window
from apache_beam.transforms.error_handling import ErrorHandler
from apache_beam.utils.timestamp import Timestamp

import aggmc_beam as am
from aggmc_beam.beam import (
    Estimate,
    EstimateRow,
    EstimateTransitions,
    ParseRecords,
    ReadRecords,
    Stream,
    SumRecords,
    SumsCombineFn,
    WriteEstimates,
    to_row,
)
from aggmc_beam.beam.frames import ElementReader
from aggmc_beam.errors import InputError
from aggmc_beam.records import Clock, Schema
from aggmc_beam.sums.state import AggregationState
from tests.combine_checks import check_combine_fn

STATES = ("in", "out")


def counts(steps=30, realizations=40, seed=1):
    return am.simulate(states=2, steps=steps, realizations=realizations, population=50, seed=seed)[0]


def rows_of(y, **more):
    return [
        {"realization": k, "time": t, "in": int(y[k, t, 0]), "out": int(y[k, t, 1]), **more}
        for k in range(len(y))
        for t in range(y.shape[1])
    ]


def sums_fn(**options):
    return SumsCombineFn(STATES, population=50, counts=STATES, **options)


def combined(fn, elements):
    total = fn.create_accumulator()
    for element in elements:
        total = fn.add_input(total, element)
    return fn.extract_output(total)


def same_state(a, b):
    assert a.sums.canonical().to_bytes() == b.sums.canonical().to_bytes()


def test_it_gives_what_estimate_gives():
    y = counts()
    fn = sums_fn()
    found = dict(_estimates(combined(fn, rows_of(y))))[()]
    expected = am.estimate(y, states=STATES, population=50)
    np.testing.assert_array_equal(found.transition_matrix, expected.transition_matrix)
    np.testing.assert_array_equal(found.standard_error, expected.standard_error)


def _estimates(state):
    from aggmc_beam.beam.estimate import EstimateStates

    return [(group, found[0]) for group, found in EstimateStates().estimates(state)]


@pytest.mark.parametrize("block", [None, 5])
def test_it_bears_what_runners_do(block):
    y = counts(steps=8, realizations=1)
    check_combine_fn(sums_fn(block=block, replicates=4), rows_of(y)[:7], same_state)


def test_states_and_blocks_are_inputs_too():
    y = counts()
    rows = rows_of(y)
    fn = sums_fn(replicates=10)
    whole = combined(fn, rows)
    half = combined(fn, rows[:600])
    records = ElementReader(fn.plan.schema).read(rows[600:]).records[0]
    same_state(combined(fn, [half, records]), whole)


def test_full_buffers_are_summed_and_change_nothing():
    rows = rows_of(counts(steps=100, realizations=60))
    fn, small = sums_fn(), sums_fn()
    small.enough = 1000
    for part in (rows, rows[::-1]):
        same_state(combined(small, part), combined(fn, part))


Named = namedtuple("Named", ["realization", "time", "counts"])


@dataclasses.dataclass
class Data:
    realization: str
    time: int
    counts: list


@pytest.mark.parametrize(
    "make",
    [
        lambda r: r,
        lambda r: beam.Row(**r),
        lambda r: Named(**r),
        lambda r: Data(**r),
        lambda r: json.dumps(r),
        lambda r: json.dumps(r).encode(),
        lambda r: json.dumps([r]),
        lambda r: PubsubMessage(json.dumps(r).encode(), {}),
        lambda r: ("a key", r),
        lambda r: (b"key", json.dumps(r).encode()),
        lambda r: {**r, "counts": [Decimal(c) for c in r["counts"]]},
        lambda r: {**r, "counts": np.array(r["counts"])},
        lambda r: {**r, "time": np.int64(r["time"]), "realization": r["realization"].encode()},
        lambda r: {**r, "time": pa.scalar(r["time"]), "counts": pa.scalar(r["counts"])},
        lambda r: pa.RecordBatch.from_pylist([r]),
        lambda r: pa.Table.from_pylist([r]),
    ],
)
def test_every_type_of_a_row_is_read(make):
    rows = [{"realization": f"r{k}", "time": t, "counts": [k + t, 9 - t]} for k in range(3) for t in range(5)]
    fn = SumsCombineFn(STATES, population=50)
    same_state(combined(fn, map(make, rows)), combined(fn, rows))


@pytest.mark.parametrize(
    "make",
    [
        lambda t: t,
        lambda t: t.astimezone(timezone(timedelta(hours=2))),
        lambda t: t.replace(tzinfo=None),
        lambda t: t.isoformat(),
        lambda t: Timestamp.from_utc_datetime(t),
        lambda t: np.datetime64(t.replace(tzinfo=None)),
        lambda t: pa.scalar(t),
    ],
)
def test_every_type_of_a_time_is_read(make):
    begin = datetime(2024, 1, 1, tzinfo=timezone.utc)
    reader = ElementReader(Schema(STATES, STATES, clock=Clock("1h")))
    rows = [
        {"realization": 0, "time": make(begin + timedelta(hours=h)), "in": 1, "out": 2} for h in range(50)
    ]
    for part in (rows, rows[:1]):
        found = reader.read(part)
        assert not found.rejected
        assert found.records[0].time.tolist() == [473352 + h for h in range(len(part))]


def test_one_bad_value_costs_its_row_alone():
    rows = rows_of(counts(steps=10, realizations=10))
    reader = ElementReader(Schema(STATES, STATES))
    bad = [True, "x", None, float("nan"), [1], 1e31, "\ud800", b"\xff"]
    for i, value in enumerate(bad):
        rows[7 * i] = {**rows[7 * i], "in": value}
    found = reader.read([*rows, 5, "{"])
    assert (found.rows, sum(map(len, found.records)), len(found.rejected)) == (102, 92, 10)


def test_a_key_of_rejected_records_fails_unless_that_is_allowed():
    with pytest.raises(InputError, match="all 2 records were rejected; one of them: realization is missing"):
        combined(sums_fn(), [{"time": 0}, {"time": 1}])
    assert combined(sums_fn(max_rejected=2), [{"time": 0}, {"time": 1}]).records == 0
    good = rows_of(counts(steps=5, realizations=1))
    assert combined(sums_fn(), [*good, {}]).sums.total.counts.rejected == 1
    with pytest.raises(InputError, match="max_rejected"):
        combined(sums_fn(max_rejected=0), [*good, {}])


def test_repeats_that_meet_are_counted():
    rows = rows_of(counts(steps=5, realizations=2))
    fn = sums_fn(replicates=2)
    assert combined(fn, rows + rows).sums.total.counts.duplicates == 10
    state = combined(fn, rows)
    assert combined(fn, [state, state]).sums.total.counts.overlaps == 10


def check_matrices(expected):
    def check(found):
        assert sorted(key for key, _ in found) == sorted(expected)
        for key, estimate in found:
            np.testing.assert_allclose(
                estimate.transition_matrix, expected[key].transition_matrix, rtol=0, atol=1e-12
            )

    return check


def test_it_combines_by_key_globally_in_lists_with_fanout_and_in_groups():
    north, south = counts(), counts(seed=2)
    rows = [("north", r) for r in rows_of(north)] + [("south", r) for r in rows_of(south)]
    expected = {
        name: am.estimate(y, states=STATES, population=50) for name, y in [("north", north), ("south", south)]
    }
    both = am.estimate(np.concatenate([north, south]), states=STATES, population=50)
    apart = [{**r, "realization": r["realization"] + 40 * (key == "south")} for key, r in rows]
    with beam.Pipeline("FnApiRunner") as p:
        given = p | beam.Create(rows)
        by_key = given | "K" >> beam.CombinePerKey(sums_fn()) | "EK" >> Estimate()
        assert_that(by_key, check_matrices(expected), "per key")
        hot = given | "H" >> beam.CombinePerKey(sums_fn()).with_hot_key_fanout(3) | "EH" >> Estimate()
        assert_that(hot, check_matrices(expected), "fan-out")
        values = given | beam.GroupByKey() | beam.CombineValues(sums_fn()) | "EV" >> Estimate()
        assert_that(values, check_matrices(expected), "values")
        whole = p | "Apart" >> beam.Create(apart) | "G" >> beam.CombineGlobally(sums_fn())
        keyed = whole | beam.Map(lambda state: ("all", state)) | "EG" >> Estimate()
        assert_that(keyed, check_matrices({"all": both}), "globally")
        grouped = (
            given
            | beam.MapTuple(lambda key, r: beam.Row(key=key, record=r))
            | beam.GroupBy("key").aggregate_field("record", sums_fn(), "sums")
            | beam.Map(lambda row: (row.key, row.sums))
            | "EF" >> Estimate()
        )
        assert_that(grouped, check_matrices(expected), "fields")


MODES = trigger.AccumulationMode.DISCARDING, trigger.AccumulationMode.ACCUMULATING
#: Older releases of Beam refuse fan-out in sliding windows (apache/beam#20528).
NO_SLIDING_FANOUT = "20528" in inspect.getsource(beam.transforms.core)


@pytest.mark.parametrize("mode", MODES, ids=["discarding", "accumulating"])
@pytest.mark.parametrize(("windows", "starts"), [
    (window.FixedWindows(20), (0, 20)), (window.SlidingWindows(20, 10), (-10, 0, 10, 20, 30)),
], ids=["fixed", "sliding"])  # fmt: skip
def test_it_keeps_windows_with_fan_out_and_without(windows, starts, mode):
    y = counts(steps=40, realizations=25)
    expected = {
        start: am.estimate(y[:, max(0, start) : start + 20], states=STATES, population=50) for start in starts
    }
    with beam.Pipeline("FnApiRunner") as p:
        given = (
            p
            | beam.Create(rows_of(y))
            | beam.Map(lambda r: window.TimestampedValue(("all", r), r["time"]))
            | beam.WindowInto(windows, trigger=trigger.AfterWatermark(), accumulation_mode=mode)
        )
        refused = NO_SLIDING_FANOUT and isinstance(windows, window.SlidingWindows)
        for fanout in (None,) if refused else (None, 3):
            combine = beam.CombinePerKey(sums_fn())
            sums = given | f"Sum {fanout}" >> (combine.with_hot_key_fanout(fanout) if fanout else combine)
            found = sums | f"Estimate {fanout}" >> Estimate()
            started = found | f"Started {fanout}" >> beam.Map(
                lambda kv, w=beam.DoFn.WindowParam: (int(w.start), kv[1])
            )
            assert_that(started, check_matrices(expected), f"fan-out {fanout}")


@pytest.mark.parametrize(("mode", "each"), [(MODES[0], [20, 20, 20]), (MODES[1], [20, 40, 60])])
def test_early_panes_hold_what_came_since_the_last_or_all_of_it(mode, each):
    rows = rows_of(counts(steps=10, realizations=6))
    stream = Arrivals()
    for start in (0, 20, 40):
        part = [window.TimestampedValue(("all", r), r["time"]) for r in rows[start : start + 20]]
        stream = stream.add_elements(part)
    options = PipelineOptions(["--streaming", "--allow_unsafe_triggers"])
    with beam.Pipeline("BundleBasedDirectRunner", options=options) as p:
        every = trigger.Repeatedly(trigger.AfterCount(20))
        given = p | stream.advance_watermark_to_infinity() | beam.WindowInto(
            window.FixedWindows(1000), trigger=every, accumulation_mode=mode
        )  # fmt: skip
        sums = given | beam.CombinePerKey(sums_fn())
        assert_that(sums | beam.MapTuple(lambda key, state: state.records), equal_to(each))


def test_sums_without_a_key_have_estimates_without_one(tmp_path):
    y = counts(steps=5)
    with beam.Pipeline("FnApiRunner") as p:
        given = p | beam.Create(rows_of(y))
        sums = given | beam.CombineGlobally(sums_fn())
        keyed = given | beam.WithKeys("north") | beam.CombinePerKey(sums_fn())
        assert sums.element_type is AggregationState
        assert keyed.element_type.tuple_types[1] is AggregationState
        found, others = (some | f"Estimate {i}" >> Estimate() for i, some in enumerate((sums, keyed)))
        assert found.element_type is am.Estimate
        for i, some in enumerate((found, others)):
            _ = some | f"Write {i}" >> WriteEstimates(str(tmp_path / str(i)))
    expected = am.estimate(y, states=STATES, population=50)
    for i, group in enumerate((None, {"key": "north"})):
        [line] = (tmp_path / str(i) / "estimates.jsonl").read_text().splitlines()
        one = am.Estimate.from_json(line)
        assert one.group == group
        np.testing.assert_array_equal(one.transition_matrix, expected.transition_matrix)


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: SumsCombineFn(STATES, estimator="mom"), "estimator"),
        (lambda: SumRecords(STATES, stream=Stream()), "stream"),
        (lambda: ParseRecords(STATES, relization="k"), "relization"),
        (lambda: EstimateTransitions(STATES, "exact"), "must be a noise model"),
        (lambda: EstimateTransitions(STATES, stream={"refresh": "1s"}), "must be Stream"),
        (lambda: EstimateTransitions(STATES, chain={"cycle": 4}), "chain .* is not known"),
        (lambda: EstimateTransitions("in"), "a list of names"),
    ],
)
def test_options_that_mean_nothing_are_refused_when_a_pipeline_is_made(make, why):
    with pytest.raises((InputError, TypeError), match=why):
        make()


def test_estimate_may_hand_over_what_fails():
    few = rows_of(counts(steps=1, realizations=1))
    with beam.Pipeline("FnApiRunner") as p:
        sums = p | beam.Create([("few", r) for r in few]) | beam.CombinePerKey(sums_fn())
        good, bad = sums | Estimate().with_exception_handling()
        assert_that(good, lambda found: None)
        keys = bad | beam.Map(lambda failed: failed[0][0])

        def only_few(found):
            assert found == ["few"]

        assert_that(keys, only_few, "bad")


@pytest.mark.parametrize("option", ["--runtime_type_check", "--type_check_additional=all"])
def test_types_that_are_declared_are_those_of_the_elements(option):
    rows = rows_of(counts(steps=5, realizations=25))
    options = {"population": 50, "counts": STATES}
    with beam.Pipeline("FnApiRunner", options=PipelineOptions([option])) as p:
        given = p | beam.Create([*rows, "no record"])
        found = given | EstimateTransitions(STATES, **options)
        typed = found.estimates | beam.Map(to_row).with_output_types(EstimateRow)
        assert_that(typed | beam.Map(lambda row: row.pairs), equal_to([100]), "rows")
        summed = given | "Sum" >> SumRecords(STATES, **options)
        assert_that(summed.sums | "E" >> Estimate() | "N" >> beam.Keys(), equal_to([()]), "sums")
        pairs = given | "Pairs" >> beam.Map(lambda r: ("all", r)).with_output_types(tuple[str, Any])
        keyed = pairs | SumRecords.PerKey(STATES, **options)
        assert_that(keyed.sums | "EK" >> Estimate() | "NK" >> beam.Keys(), equal_to(["all"]), "keyed")
        combined = pairs | beam.CombinePerKey(sums_fn()) | "EC" >> Estimate()
        assert_that(combined | "NC" >> beam.Keys(), equal_to(["all"]), "combined")
        _, rejected = given | ParseRecords(STATES, counts=STATES)
        assert_that(rejected | beam.Map(lambda r: r["record"]), equal_to(["no record"]), "rejected")


def test_files_are_read_as_blocks_with_their_rejected_rows(tmp_path):
    lines = [json.dumps(row) for row in rows_of(counts(steps=5, realizations=4))]
    (tmp_path / "a.jsonl").write_text("\n".join([*lines, "{"]))
    with beam.Pipeline("FnApiRunner") as p:
        blocks, rejected = p | ReadRecords(str(tmp_path / "*.jsonl"), STATES, counts=STATES)
        assert_that(blocks | beam.Map(len), equal_to([20]), "blocks")
        assert_that(rejected | beam.Map(lambda r: r["source"]["row"]), equal_to([21]), "rejected")
        sums = blocks | beam.CombineGlobally(sums_fn()) | beam.Map(lambda s: ("all", s)) | Estimate()
        _ = sums | WriteEstimates(str(tmp_path / "out"), parquet=True)
    [line] = (tmp_path / "out" / "estimates.jsonl").read_text().splitlines()
    assert am.Estimate.from_json(line).counts["pairs"] == 16
    assert list((tmp_path / "out").glob("*.parquet"))


def test_unbounded_records_have_the_windows_and_triggers_of_their_pipeline():
    y = counts(steps=40, realizations=25)
    stream = Arrivals()
    for start in (0, 20):
        part = [r for r in rows_of(y) if start <= r["time"] < start + 20]
        early = [window.TimestampedValue(r, r["time"]) for r in part]
        stream = stream.add_elements(early).advance_watermark_to(start + 20)
    windows = beam.WindowInto(
        window.FixedWindows(20),
        trigger=trigger.AfterWatermark(),
        accumulation_mode=trigger.AccumulationMode.ACCUMULATING,
    )
    options = PipelineOptions(["--streaming"])
    with beam.Pipeline("BundleBasedDirectRunner", options=options) as p:
        made = EstimateTransitions(STATES, population=50, counts=STATES, windowing="input")
        found = p | stream.advance_watermark_to_infinity() | windows | made
        keyed = found.estimates | beam.Map(lambda e: (e.window["start"], e))
        expected = {
            Timestamp(start).to_rfc3339(): am.estimate(y[:, start : start + 20], states=STATES, population=50)
            for start in (0, 20)
        }
        assert_that(keyed, check_matrices(expected))


def test_a_stream_with_the_windows_of_its_pipeline_has_no_refreshes_of_its_own():
    with pytest.raises(InputError, match="leave `stream` out"):
        EstimateTransitions(STATES, windowing="input", stream=Stream())


def metrics(result, kind):
    found = result.metrics().query(MetricsFilter().with_namespace("aggmc"))[kind]
    names = dict.fromkeys(m.key.metric.name for m in found)
    return {
        n: sum(getattr(m.committed, "sum", m.committed) for m in found if m.key.metric.name == n)
        for n in names
    }


def test_counters_and_distributions_are_there_in_bounded_use():
    rows = rows_of(counts(steps=5, realizations=25))
    with beam.Pipeline("FnApiRunner") as p:
        _ = p | beam.Create([*rows, rows[0], "no record"]) | EstimateTransitions(STATES, counts=STATES)
    assert metrics(p.result, "counters") == {"rows": 127, "records": 125, "duplicates": 1, "rejected": 1}
    found = metrics(p.result, "distributions")
    assert found.keys() == {"records_per_bundle", "state_bytes", "milliseconds_per_estimate"}
    assert found["records_per_bundle"] == 125


def test_the_combine_fn_counts_too_and_nothing_twice():
    rows = rows_of(counts(steps=5, realizations=25))
    with beam.Pipeline("FnApiRunner") as p:
        blocks, _ = p | beam.Create([*rows, "no record"]) | ParseRecords(STATES, counts=STATES)
        _ = blocks | beam.CombineGlobally(sums_fn())
    assert metrics(p.result, "counters") == {"rows": 126, "records": 125, "rejected": 1}


@pytest.mark.parametrize(
    "use",
    [
        lambda handler: EstimateTransitions(STATES, counts=STATES).with_error_handler(handler),
        lambda handler: SumRecords(STATES, counts=STATES).with_error_handler(handler),
        lambda handler: ParseRecords(STATES, counts=STATES).with_error_handler(handler),
    ],
    ids=["estimates", "sums", "blocks"],
)
def test_an_error_handler_is_given_what_was_rejected(use):
    rows = rows_of(counts(steps=5, realizations=2))
    with beam.Pipeline("FnApiRunner") as p:
        with ErrorHandler(beam.Map(lambda row: tuple(row))) as handler:
            _ = p | beam.Create([*rows, b"\xed\xa0\x80"]) | use(handler)
        expected = (
            "\\xed\\xa0\\x80",
            "the line is not JSON: Expecting value: line 1 column 1 (char 0)",
            None,
            None,
        )
        assert_that(handler.output(), equal_to([expected]))


def test_exact_sums_refuse_windows_and_triggers_that_they_cannot_honour():
    p = beam.Pipeline("FnApiRunner")
    rows = p | beam.Create(rows_of(counts(steps=5, realizations=2)))
    early = trigger.AfterWatermark(early=trigger.AfterCount(1))
    given = rows | beam.WindowInto(
        window.FixedWindows(5), trigger=early, accumulation_mode=trigger.AccumulationMode.DISCARDING
    )
    for made in (SumRecords(STATES), EstimateTransitions(STATES, windowing="input")):
        with pytest.raises(InputError, match="may fire before a window is complete"):
            given | made
    with pytest.raises(InputError, match="are merged"):
        rows | "Sessions" >> beam.WindowInto(window.Sessions(5)) | SumRecords.PerKey(STATES)
    with pytest.raises(InputError, match="need bounded data"):
        p | Arrivals() | "Unbounded" >> SumRecords(STATES)


def test_triggers_count_the_records_of_an_unbounded_pipeline():
    rows = rows_of(counts(steps=10, realizations=6))
    stream = Arrivals()
    for start in (0, 20, 40):
        stream = stream.add_elements(
            [window.TimestampedValue(r, r["time"]) for r in rows[start : start + 20]] + [None]
        )
    with beam.Pipeline(
        "BundleBasedDirectRunner", options=PipelineOptions(["--streaming", "--allow_unsafe_triggers"])
    ) as p:
        every = trigger.Repeatedly(trigger.AfterCount(20))
        given = p | stream.advance_watermark_to_infinity() | beam.WindowInto(
            window.FixedWindows(1000), trigger=every, accumulation_mode=trigger.AccumulationMode.ACCUMULATING
        )  # fmt: skip
        made = EstimateTransitions(STATES, population=50, counts=STATES, estimator="mom", windowing="input")
        found = given | made
        assert_that(found.estimates | beam.Map(lambda e: e.counts["records"]), equal_to([20, 40, 60]))
        assert_that(found.rejected | beam.Map(lambda r: r["record"]), equal_to([None] * 3), "rejected")


def test_poison_does_not_reach_windows():
    rows = rows_of(counts(steps=10, realizations=25))
    far = [{**rows[0], "time": t} for t in (2**53 - 1, -(2**53) + 1, 2**60)]
    bad = [*far, {**rows[0], "realization": "x" * 2**20}, json.dumps({**rows[0], "realization": "a\ud800"})]
    stream = Arrivals().add_elements([window.TimestampedValue(r, 0) for r in [*bad, *rows]])
    with beam.Pipeline("BundleBasedDirectRunner", options=PipelineOptions(["--streaming"])) as p:
        given = p | stream.advance_watermark_to_infinity() | beam.WindowInto(window.FixedWindows(1000))
        found = given | EstimateTransitions(STATES, population=50, counts=STATES, windowing="input")
        assert_that(found.estimates | beam.Map(lambda e: e.counts["records"]), equal_to([250]))
        assert_that(found.rejected | beam.Map(lambda r: 1), equal_to([1] * 5), "rejected")

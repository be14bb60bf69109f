"""The steps of an estimate, each a transform that can be used alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import apache_beam as beam
import numpy as np
from apache_beam.transforms.trigger import AfterWatermark, DefaultTrigger
from apache_beam.transforms.window import GlobalWindows
from apache_beam.typehints import typehints

from aggmc_beam.beam import sinks
from aggmc_beam.beam.blocks import Block, join_blocks
from aggmc_beam.beam.dead_letters import WithErrorHandler
from aggmc_beam.beam.estimate import EstimateStates, in_window
from aggmc_beam.beam.exact import (
    BLOCKS,
    NOTICED,
    REJECTED,
    SHARDS,
    STATES,
    SumBlocks,
    Summed,
    add_counts,
    count_noticed,
    first_of_repeated,
    of_groups,
    shown_record,
)
from aggmc_beam.beam.files import find_files
from aggmc_beam.beam.frames import ElementReader
from aggmc_beam.beam.gather import Gather, GatherInWindows, noticed
from aggmc_beam.beam.metrics import counter
from aggmc_beam.beam.outputs import outputs, typed
from aggmc_beam.beam.pieces import Piece, SplitFile, opened_piece, read_blocks
from aggmc_beam.beam.plan import make_plan
from aggmc_beam.beam.sharing import with_pooling
from aggmc_beam.config import Output
from aggmc_beam.errors import InputError
from aggmc_beam.ledger import Ledger, check_rejected
from aggmc_beam.local.blocks import Place, RowCounts
from aggmc_beam.local.explain import CONFLICT, explain
from aggmc_beam.local.plan import Plan
from aggmc_beam.result import Estimate as Found
from aggmc_beam.sums.records import Records
from aggmc_beam.sums.state import AggregationState


class Sums(NamedTuple):
    """The outputs of `SumRecords`: PCollections of (group, state) pairs, or (key, state) with `PerKey`; of what was
    rejected: dictionaries with the record, the reason and the source; and of one `Ledger`."""

    sums: Any
    rejected: Any
    ledger: Any


class ParseRecords(WithErrorHandler):
    """Elements of any kind to blocks of records, `aggmc_beam.sums.records.Records`, and to what is none:
    dictionaries with the record, the reason and the source. Arguments are those of `EstimateTransitions`.

    `with_error_handler(handler)`, which all transforms here have that reject, gives the latter to an
    `ErrorHandler` of Beam too, as `RejectedRow`s.

    >>> rows = [{"realization": 0, "time": t, "counts": [3, 7]} for t in range(5)]
    >>> with beam.Pipeline("FnApiRunner") as p:
    ...     blocks, rejected = p | beam.Create([*rows, "{"]) | ParseRecords(["in", "out"])
    ...     _ = blocks | beam.Map(lambda block: print(block.counts.shape))
    (5, 2)
    """

    def __init__(self, states: Sequence[str], **options: Any) -> None:
        super().__init__()
        self.plan = make_plan(states, **options)

    def expand(self, elements: Any) -> tuple[Any, Any]:
        types = {BLOCKS: Records, REJECTED: dict[str, Any], NOTICED: dict[str, int]}
        batches = elements | "Batch" >> beam.BatchElements(min_batch_size=256, max_batch_size=4096)
        found = typed(batches | "Parse" >> outputs(_Parse(self.plan.schema), types), types)
        return found[BLOCKS], self._handed_over(found[REJECTED])


class ReadRecords(WithErrorHandler):
    """A pipeline to blocks of the records in files, and to rows that are none: dictionaries with the record, the
    reason and the source. `files` is a path or glob of any filesystem that Beam knows; other arguments are those
    of `EstimateTransitions`.
    """

    def __init__(self, files: str, states: Sequence[str], **options: Any) -> None:
        super().__init__()
        plan = make_plan(states, **options)
        self.plan = replace(plan, config=replace(plan.config, input=replace(plan.config.input, files=files)))

    def expand(self, pipeline: Any) -> tuple[Any, Any]:
        types = {BLOCKS: Records, REJECTED: dict[str, Any]}
        pieces = (
            pipeline
            | "Files" >> beam.Create(find_files(self.plan.config))
            | "Split" >> beam.ParDo(SplitFile(self.plan)).with_output_types(str)
            | "Spread" >> beam.Reshuffle()
        )
        found = typed(pieces | "Read" >> outputs(_ReadPiece(self.plan), types), types)
        return found[BLOCKS], self._handed_over(found[REJECTED])


class _ReadPiece(beam.DoFn):  # type: ignore[misc]
    def __init__(self, plan: Plan) -> None:
        self.plan = plan

    def process(self, text: str) -> Iterator[Any]:
        piece = Piece.from_text(text)
        for block, counts, refused in read_blocks(self.plan, piece):
            counter("rows").inc(counts.get("rows", 0))
            counter("rejected").inc(counts.get("rejected", 0))
            if block is not None and len(block):
                yield beam.pvalue.TaggedOutput(BLOCKS, block.records)
            if refused is not None:
                yield from self._rejected(piece, refused)

    def _rejected(self, piece: Piece, refused: Place) -> Iterator[Any]:
        here = Place(0 * refused.file, refused.row - piece.start)
        with opened_piece(self.plan, piece) as source:
            assert source is not None
            for r in explain([source], self.plan.schema, RowCounts(places=[here])):
                where = {"file": piece.file.path, "row": (r.row or 0) + piece.start}
                rejected = {"record": r.record, "reason": r.reason, "source": where}
                yield beam.pvalue.TaggedOutput(REJECTED, rejected)


class WriteEstimates(beam.PTransform):  # type: ignore[misc]
    """Estimates, or (key, estimate) pairs, to what is named: JSON lines in `directory`, with `parquet` also Parquet
    files there, a table of BigQuery, a topic of Pub/Sub. A key is told in `group`, by the name "key".
    """

    def __init__(
        self,
        directory: str | None = None,
        parquet: bool = False,
        bigquery: str | None = None,
        pubsub: str | None = None,
    ) -> None:
        super().__init__()
        if directory is None and (parquet or (bigquery is None and pubsub is None)):
            raise InputError(
                "name a directory" + (" for Parquet files" if parquet else ", bigquery or pubsub")
            )
        self.files = directory is not None
        self.output = Output(directory=directory or "", parquet=parquet, bigquery=bigquery, pubsub=pubsub)

    def expand(self, estimates: Any) -> Any:
        plain = estimates | "Keys" >> beam.Map(_with_key_in_group).with_output_types(Found)
        return plain | "Write" >> sinks.WriteEstimates(
            self.output, streaming=not estimates.is_bounded, files=self.files
        )


def _with_key_in_group(element: Found | tuple[Any, Found]) -> Found:
    if not isinstance(element, tuple):
        return element
    key, estimate = element
    group = estimate.group or {}
    # The keys of `SumRecords` are groups.
    return estimate if key == tuple(group.values()) else replace(estimate, group={**group, "key": str(key)})


class _Parse(beam.DoFn):  # type: ignore[misc]
    def __init__(self, schema: Any) -> None:
        self.reader = ElementReader(schema)

    def process(self, elements: list[Any]) -> Iterator[Any]:
        found = self.reader.read(elements)
        for records in found.records:
            yield beam.pvalue.TaggedOutput(BLOCKS, records)
        yield from noticed(found)


class SumRecords(WithErrorHandler):
    """Bounded elements to the exact sums of their records: one that is repeated counts once, and the output
    `ledger` tells what became of every row. Arguments are those of `EstimateTransitions`.

    All records of a realization meet, in the windows that elements have. `SumRecords.PerKey` takes (key, record)
    pairs and sums those of each key, all of which one worker holds for a while.

    >>> from aggmc_beam.beam import Estimate
    >>> rows = [{"realization": 0, "time": t, "counts": c}
    ...         for t, c in enumerate([[3, 7], [4, 6], [2, 8], [5, 5], [4, 6], [3, 7]])]
    >>> with beam.Pipeline("FnApiRunner") as p:
    ...     found = p | beam.Create([*rows, rows[0]]) | SumRecords(["in", "out"], population=10)
    ...     _ = found.sums | Estimate(estimator="mom") | beam.MapTuple(lambda group, e: print(e.counts["pairs"]))
    ...     _ = found.ledger | beam.Map(print)
    5
    7 rows read: 6 used, 1 duplicate, 0 rejected, 0 late
    """

    def __init__(self, states: Sequence[str], shards: int = SHARDS, **options: Any) -> None:
        super().__init__()
        self.plan, self.shards = make_plan(states, **options), shards

    def expand(self, elements: Any) -> Sums:
        found: Summed = elements | "Sum" >> SumElements(self.plan, self.shards)
        sums = found.states | "Groups" >> beam.FlatMapTuple(_each_group).with_output_types(
            tuple[tuple[str, ...], AggregationState]
        )
        return Sums(sums, self._handed_over(found.rejected), _ledger(found.noticed))

    class PerKey(WithErrorHandler):
        """(key, record) pairs to (key, state) pairs; see `SumRecords`."""

        def __init__(self, states: Sequence[str], **options: Any) -> None:
            super().__init__()
            self.plan = make_plan(states, **options)

        def expand(self, pairs: Any) -> Sums:
            check_windows_of_exact_sums(pairs)
            key = _key_type(pairs)
            more = {REJECTED: dict[str, Any], NOTICED: dict[str, int]}
            types = {BLOCKS: typehints.Tuple[key, Block], **more}
            gathered = typed(pairs | "Gather" >> outputs(_GatherByKey(self.plan), types), types)
            types = {
                STATES: typehints.Tuple[key, AggregationState],
                REJECTED: dict[str, Any],
                NOTICED: dict[str, int],
            }
            met = gathered[BLOCKS] | "Meet" >> beam.GroupByKey()
            summed = typed(met | "Sum" >> outputs(_SumKey(self.plan), types), types)
            all_rejected = (gathered[REJECTED], summed[REJECTED]) | "All rejected" >> beam.Flatten()
            all_noticed = (gathered[NOTICED], summed[NOTICED]) | "All noticed" >> beam.Flatten()
            return Sums(summed[STATES], self._handed_over(all_rejected), _ledger(all_noticed))


def _key_type(pairs: Any) -> Any:
    kind = pairs.element_type
    return kind.tuple_types[0] if isinstance(kind, typehints.TupleConstraint) else Any


def _each_group(bucket: int, state: AggregationState) -> Iterator[tuple[tuple[str, ...], AggregationState]]:
    for number, group in enumerate(state.groups):
        yield group, of_groups(state, np.array([number]))


def _ledger(counts: Any) -> Any:
    total = (
        counts
        | "Counts" >> beam.WindowInto(GlobalWindows())
        | "Add counts" >> beam.CombineGlobally(add_counts)
    )
    return total | "Ledger" >> beam.Map(ledger_of).with_output_types(Ledger)


def ledger_of(counts: Mapping[str, int]) -> Ledger:
    """What became of the rows that were counted."""
    ends = (counts.get(name, 0) for name in ("used", "duplicate", "rejected"))
    return Ledger(counts.get("rows", 0), *ends).check()


def check_windows_of_exact_sums(elements: Any) -> None:
    """`InputError` if repeated records cannot be dropped in the windows and with the trigger that elements have."""
    windowing = elements.windowing
    if not elements.is_bounded:
        raise InputError("exact sums need bounded data; SumsCombineFn sums unbounded records by window")
    if windowing.windowfn.is_merging():
        raise InputError(
            f"{type(windowing.windowfn).__name__} are merged after records are in them, so that no window tells "
            "which pairs it holds; use fixed or sliding windows"
        )
    trigger = windowing.triggerfn
    early = isinstance(trigger, AfterWatermark) and trigger.early is not None
    if early or not isinstance(trigger, DefaultTrigger | AfterWatermark):
        raise InputError(
            f"the records have the trigger {trigger}, which may fire before a window is complete, and a part of a "
            "window does not tell which records are repeated; leave the trigger out, or use SumsCombineFn"
        )


class SumElements(beam.PTransform):  # type: ignore[misc]
    """Elements to `Summed`, in the windows that they have."""

    def __init__(self, plan: Plan, shards: int) -> None:
        super().__init__()
        self.plan, self.shards = plan, shards

    def expand(self, elements: Any) -> Summed:
        check_windows_of_exact_sums(elements)
        whole = isinstance(elements.windowing.windowfn, GlobalWindows)
        fn = (Gather if whole else GatherInWindows)(self.plan, self.shards)
        types = {BLOCKS: tuple[int, Block], REJECTED: dict[str, Any], NOTICED: dict[str, int]}
        gathered = typed(elements | "Gather" >> outputs(fn, types), types)
        found: Summed = gathered[BLOCKS] | "Sum" >> SumBlocks(self.plan)
        rejected = (gathered[REJECTED], found.rejected) | "All rejected" >> beam.Flatten()
        counts = (gathered[NOTICED], found.noticed) | "All noticed" >> beam.Flatten()
        return found._replace(rejected=rejected, noticed=counts)


class _GatherByKey(beam.DoFn):  # type: ignore[misc]
    """(key, record) pairs to (key, block) pairs."""

    def __init__(self, plan: Plan) -> None:
        self.reader = ElementReader(plan.schema)

    def start_bundle(self) -> None:
        self.waiting: dict[Any, tuple[Any, list[Any]]] = {}

    def process(self, element: tuple[Any, Any], window: Any = beam.DoFn.WindowParam) -> Iterable[Any]:
        key, record = element
        at = (window, key)
        if at not in self.waiting:
            self.waiting[at] = key, []
        waiting = self.waiting[at][1]
        waiting.append(record)
        if len(waiting) >= 4096:
            yield from self._read(key, waiting)

    def finish_bundle(self) -> Iterator[Any]:
        for (window, key), (_, waiting) in self.waiting.items():
            yield from Gather._in_window(window, self._read(key, waiting))

    def _read(self, key: Any, waiting: list[Any]) -> Iterator[Any]:
        found = self.reader.read(waiting)
        waiting.clear()
        for records in found.records:
            yield beam.pvalue.TaggedOutput(BLOCKS, (key, Block(records)))
        yield from noticed(found)


class _SumKey(beam.DoFn):  # type: ignore[misc]
    """All blocks of a key to its state."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan

    def process(self, element: tuple[Any, Iterable[Block]]) -> Iterator[Any]:
        key, blocks = element
        records = first_of_repeated(join_blocks(list(blocks))).records
        state = AggregationState(self.plan.spec)
        found = state.add(records)
        yield beam.pvalue.TaggedOutput(STATES, (key, state))
        counts = {
            "used": len(records) - len(found.repeated) - len(found.refused),
            "duplicate": len(found.repeated),
            "rejected": len(found.refused),
        }
        count_noticed(counts)
        yield beam.pvalue.TaggedOutput(NOTICED, counts)
        for at, reason in {**found.refused, **dict.fromkeys(found.conflicting.tolist(), CONFLICT)}.items():
            shown = shown_record(records, at, self.plan.schema)
            yield beam.pvalue.TaggedOutput(REJECTED, {"record": shown, "reason": reason, "source": None})


class EstimateBuckets(beam.DoFn):  # type: ignore[misc]
    """(bucket, state) to estimates, in the window of the state; groups with too little data go to `SKIPPED`.

    `counts` and `reasons` tell of rejected records, `reasons` being "" where they are said elsewhere. Neither may
    have a default: Beam would put the window in the place of one that is not given.
    """

    SKIPPED = "skipped"

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.step = EstimateStates(plan.settings)

    def process(
        self,
        element: tuple[int, AggregationState],
        counts: Mapping[str, int],
        reasons: str,
        window: Any = beam.DoFn.WindowParam,
    ) -> Iterator[Any]:
        check_counts(self.plan, counts, (lambda: reasons) if reasons else None)
        state = element[1]
        if len(state.groups) == 1 and counts.get("groups") == 1:
            state = state.copy()
            state.count(state.groups[0], rejected=counts.get("rejected", 0))
        for group, found in self.step.estimates(state):
            if isinstance(found, InputError):
                counter("skipped_groups").inc()
                yield beam.pvalue.TaggedOutput(self.SKIPPED, (group, str(found)))
            else:
                yield group, [in_window(one, window) for one in found]


def check_counts(plan: Plan, counts: Mapping[str, int], reasons: Callable[[], object] | None = None) -> None:
    """`InputError` if too many records were rejected."""
    rejected = counts.get("rejected", 0)
    read = rejected + counts.get("used", 0) + counts.get("duplicate", 0)
    check_rejected(rejected, read, plan.config.max_rejected, reasons=reasons)


def check_any_used(plan: Plan, counts: Mapping[str, int], reasons: Iterable[str]) -> None:
    """`InputError` if there were records and none could be used, unless `max_rejected` allows that."""
    check_counts(plan, counts)
    if counts.get("rejected") and not counts.get("used") and plan.config.max_rejected is None:
        reason = next(iter(reasons), "")
        raise InputError(f"all {counts['rejected']:,} records were rejected; one of them: {reason}")


class EstimateSums(beam.PTransform):  # type: ignore[misc]
    """`Summed` to estimates of its groups, in the order of cells; fails where no record could be used."""

    def __init__(self, plan: Plan) -> None:
        super().__init__()
        self.plan = plan

    def expand(self, inputs: Any) -> Any:
        found = Summed(*inputs)
        total = total_counts(found)
        reason = (
            found.rejected
            | "Reasons" >> beam.Map(lambda r: r["reason"]).with_output_types(str)
            | "One window" >> beam.WindowInto(GlobalWindows())
            | "Reason" >> beam.CombineGlobally(_least).without_defaults()
        )
        _ = total | "Check" >> beam.ParDo(_Check(self.plan), beam.pvalue.AsIter(reason))
        step = beam.ParDo(EstimateBuckets(self.plan), beam.pvalue.AsSingleton(total), "")
        estimated = found.states | "Estimate" >> step.with_outputs(EstimateBuckets.SKIPPED, main="estimates")
        estimates = with_pooling(self.plan.settings, found.states, estimated.estimates)
        return estimates | "Each" >> beam.FlatMapTuple(estimates_of).with_output_types(Found)


def total_counts(found: Summed) -> Any:
    """All that was noticed, and the number of groups, as one dictionary."""
    counts = found.noticed | "Counts" >> beam.WindowInto(GlobalWindows())
    groups = (
        found.states
        | "States" >> beam.WindowInto(GlobalWindows())
        | "Groups" >> beam.MapTuple(_groups).with_output_types(dict[str, int])
    )
    return (counts, groups) | "All counts" >> beam.Flatten() | "Total" >> beam.CombineGlobally(add_counts)


def _groups(_: int, state: AggregationState) -> dict[str, int]:
    return {"groups": len(state.groups)}


def estimates_of(group: Any, found: list[Found]) -> list[Found]:
    """What `EstimateBuckets` found for a group."""
    return found


def _least(reasons: Iterable[str]) -> str:
    return min(reasons, default="")


class _Check(beam.DoFn):  # type: ignore[misc]
    def __init__(self, plan: Plan) -> None:
        self.plan = plan

    def process(self, counts: Mapping[str, int], reasons: Iterable[str]) -> None:
        check_any_used(self.plan, counts, reasons)

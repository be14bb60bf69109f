"""SumsCombineFn: the sums of records in any window, trigger and key that a pipeline has."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import apache_beam as beam
import numpy as np

from aggmc_beam.beam import codec
from aggmc_beam.beam.blocks import Block, decode_block, encode_block
from aggmc_beam.beam.coders import SmallCoder
from aggmc_beam.beam.frames import ElementReader
from aggmc_beam.beam.metrics import counter
from aggmc_beam.beam.plan import make_plan
from aggmc_beam.config.special import chain_to_plain
from aggmc_beam.errors import InputError
from aggmc_beam.ledger import check_rejected
from aggmc_beam.local.plan import Plan
from aggmc_beam.noise import Noise
from aggmc_beam.sums.records import Records, joined_records
from aggmc_beam.sums.spec import SumSpec
from aggmc_beam.sums.state import AggregationState

#: Elements that wait to be read: enough for their columns to be worth making, few enough that those of a thousand
#: keys fit into memory.
WAITING = 4096
#: Values of records that are held before they are summed, for few states.
HELD_VALUES = 1 << 20
#: The kind of the bytes of an accumulator.
ACCUMULATED = 16


@dataclass(eq=False)
class Accumulated:
    """Elements that wait to be read, records that wait to be summed, and the sums of all others.

    Records wait until there are so many that their sums are smaller: the jackknife rule is made from all that
    wait, and nothing is summed for keys that hold little before they are complete.
    """

    waiting: list[Any] = field(default_factory=list)
    blocks: list[Records] = field(default_factory=list)
    values: int = 0
    state: AggregationState | None = None
    rows: int = 0
    rejected: int = 0
    reason: str = ""

    def hold(self, records: Records) -> None:
        self.blocks.append(records)
        self.values += records.counts.size

    def reject(self, number: int, reason: str) -> None:
        self.rejected += number
        self.reason = min(filter(None, (self.reason, reason)), default="")

    def summed(self, spec: SumSpec) -> AggregationState:
        """The state with all records; this accumulator is not changed."""
        state = AggregationState(spec) if self.state is None else self.state.copy()
        if self.blocks:
            state.add(joined_records(self.blocks))
        return state


@beam.typehints.with_output_types(AggregationState)
class SumsCombineFn(beam.CombineFn):  # type: ignore[misc]
    """Combines records to an `AggregationState`: their sums, from which `Estimate` makes estimates.

    It takes what a pipeline has: dictionaries, `beam.Row`, named tuples, dataclasses, JSON text, Pub/Sub messages,
    Arrow tables and record batches, `Records`, and states of other runs; in any window and with any trigger, with
    `with_hot_key_fanout`, in CombinePerKey, CombineGlobally, CombineValues and GroupBy(...).aggregate_field.

    Each (realization, time) of a key and window must come once; where it may come again, use `SumRecords`. Those
    that meet by chance are counted, as duplicates or overlaps. A pair of records belongs to a window if both do.
    Elements that are no records are counted as rejected. A key or window without any valid record is an error,
    unless `max_rejected` says how many may be rejected.

    `states`, `noise`, `population`, `chain` and `fields` (`realization`, `time`, `counts`, `population_column`,
    `group_by`, `step`, `origin`, `replicates`, `block`, `max_rejected`, `missing`, `values`) are those of
    `EstimateTransitions`.
    `block` is a number of steps: with it, the jackknife groups are blocks of so many steps, whatever the data hold.
    Without it, they are told by the first records to be summed, some 100,000 of a key, as the local engine does it.

    >>> import aggmc_beam as am
    >>> from aggmc_beam.beam import Estimate
    >>> rows = [("north", {"realization": 0, "time": t, "counts": c})
    ...         for t, c in enumerate([[3, 7], [4, 6], [2, 8], [5, 5], [4, 6], [3, 7]])]
    >>> with beam.Pipeline("FnApiRunner") as p:
    ...     sums = p | beam.Create(rows) | beam.CombinePerKey(SumsCombineFn(["in", "out"], population=10))
    ...     _ = sums | Estimate(estimator="mom") | beam.MapTuple(lambda key, e: print(key, e.counts["pairs"]))
    north 5
    """

    def __init__(self, states: Sequence[str], noise: Noise | None = None, population: float | str = "estimate",
                 chain: Any = "stationary", **fields: Any) -> None:  # fmt: skip
        self._set(make_plan(states, noise, population, chain, **fields))

    @classmethod
    def of_plan(cls, plan: Plan) -> SumsCombineFn:
        """With the settings of a plan."""
        made = cls.__new__(cls)
        made._set(plan)
        return made

    def _set(self, plan: Plan) -> None:
        self.plan, self.spec = plan, plan.spec
        if chain_to_plain(self.spec.chain) is None:
            raise InputError("sums of a chain with given covariates cannot be sent between workers")
        self.limit = plan.config.max_rejected
        self.reader = ElementReader(plan.schema)
        S = len(self.spec.states)
        # 50 replicates of four matrices, below which records take less memory than their sums.
        self.enough = max(HELD_VALUES, 50 * 4 * S * S)

    def create_accumulator(self) -> Accumulated:
        return Accumulated()

    def add_input(self, accumulator: Accumulated, element: Any) -> Accumulated:
        if isinstance(element, AggregationState):
            self._join(accumulator, element)
            return accumulator
        waiting = accumulator.waiting
        waiting.append(element)
        if len(waiting) >= WAITING:
            self._read(accumulator)
        return accumulator

    def merge_accumulators(self, accumulators: Iterable[Accumulated]) -> Accumulated:
        total = None
        for one in accumulators:
            if total is None:
                total = one
                continue
            total.waiting += one.waiting
            total.blocks += one.blocks
            total.values += one.values
            total.rows += one.rows
            total.reject(one.rejected, one.reason)
            if one.state is not None:
                self._join(total, one.state)
            if len(total.waiting) >= WAITING or total.values >= self.enough:
                self.compact(total)
        return Accumulated() if total is None else total

    def compact(self, accumulator: Accumulated) -> Accumulated:
        """Read what waits; sum what is held, if it is enough."""
        self._read(accumulator)
        return accumulator

    def extract_output(self, accumulator: Accumulated) -> AggregationState:
        self._read(accumulator)
        state = accumulator.summed(self.spec)
        check_rejected(accumulator.rejected, accumulator.rows, self.limit)
        if self.limit is None and accumulator.rejected and not state.records:
            raise InputError(
                f"all {accumulator.rejected:,} records were rejected; one of them: {accumulator.reason}"
            )
        if accumulator.rejected and len(state.groups) == 1:
            state.count(state.groups[0], rejected=accumulator.rejected)
        return state

    def get_accumulator_coder(self) -> Any:
        return AccumulatedCoder(self)

    def default_label(self) -> str:
        return "SumsCombineFn"

    def _read(self, accumulator: Accumulated) -> None:
        if accumulator.waiting:
            waiting, accumulator.waiting = accumulator.waiting, []
            found = self.reader.read(waiting)
            accumulator.rows += found.rows
            counter("rows").inc(found.rows - found.read_before)
            counter("records").inc(found.rows - len(found.rejected))
            counter("rejected").inc(len(found.rejected))
            for one in found.rejected:
                accumulator.reject(1, one["reason"])
            for records in found.records:
                accumulator.hold(records)
        if accumulator.values >= self.enough:
            accumulator.state = accumulator.summed(self.spec)
            accumulator.blocks, accumulator.values = [], 0

    def _join(self, accumulator: Accumulated, state: AggregationState) -> None:
        if accumulator.state is None:
            state.spec.check_joins(self.spec, "states of sums")
            accumulator.state = state
        else:
            accumulator.state = accumulator.state + state


class AccumulatedCoder(SmallCoder):
    """Bytes of accumulators, whose elements are read before."""

    of = Accumulated

    def __init__(self, fn: SumsCombineFn) -> None:
        self.fn = fn

    def encode(self, value: Accumulated) -> bytes:
        self.fn.compact(value)
        block = encode_block(Block(joined_records(value.blocks))) if value.blocks else b""
        state = b"" if value.state is None else value.state.to_bytes(deflate=False)
        meta = [value.rows, value.rejected, value.reason]
        arrays = (np.frombuffer(data, np.int8) if data else np.zeros(0, np.int8) for data in (block, state))
        return codec.encode(ACCUMULATED, meta, *arrays)

    def decode(self, encoded: bytes) -> Accumulated:
        (rows, rejected, reason), (block, state) = codec.decode(encoded, ACCUMULATED, narrow=True)
        made = Accumulated(rows=rows, rejected=rejected, reason=reason)
        if len(block):
            made.hold(decode_block(block.tobytes()).records)
        if len(state):
            made.state = AggregationState.from_bytes(state.tobytes(), "an encoded accumulator")
        return made

    def estimate_size(self, value: Accumulated) -> int:
        return 100 + 4 * value.values + 100 * len(value.waiting)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AccumulatedCoder) and other.fn.spec == self.fn.spec

    def __hash__(self) -> int:
        return hash(AccumulatedCoder)

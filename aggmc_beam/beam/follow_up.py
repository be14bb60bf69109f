"""FollowUp: flows, forecasts and alarms of single realizations, behind records and their estimates."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import apache_beam as beam
import numpy as np
from apache_beam.transforms.timeutil import TimeDomain
from apache_beam.transforms.userstate import BagStateSpec, ReadModifyWriteStateSpec, TimerSpec, on_timer
from apache_beam.transforms.window import GlobalWindows

from aggmc_beam.beam.blocks import Block, BlockCoder, decode_block, encode_block
from aggmc_beam.beam.coders import EstimateCoder
from aggmc_beam.beam.exact import BLOCKS, NOTICED, REJECTED
from aggmc_beam.beam.gather import Gather
from aggmc_beam.beam.live_coder import LiveCoder
from aggmc_beam.beam.metrics import counter
from aggmc_beam.beam.outputs import outputs
from aggmc_beam.beam.plan import make_plan
from aggmc_beam.beam.timing import HEALTH_ENDS, Timing, has_simulated_clock
from aggmc_beam.config import Output
from aggmc_beam.errors import InputError
from aggmc_beam.fit.groups import by_group
from aggmc_beam.local.plan import Plan
from aggmc_beam.result import Estimate, Estimates
from aggmc_beam.sums.records import Group, Records, joined_records
from aggmc_beam.uses.change import apart, change
from aggmc_beam.uses.flow_model import sample
from aggmc_beam.uses.live import Live, Told, Wanted
from aggmc_beam.uses.series import series_of
from aggmc_beam.uses.tables import Table

#: Keys over which the realizations of a group are spread, and how long a refresh waits for all its cells
#: (microseconds).
SHARDS, SETTLE = 4, 10**6
#: Windows whose estimates are kept.
WINDOWS = 60
FLOWS, FORECASTS, SCORES, ALARMS, CHANGES = "flows", "forecasts", "scores", "alarms", "changes"
#: Rows that were handed out.
TOLD = {
    FLOWS: counter("flows"),
    FORECASTS: counter("forecasts"),
    SCORES: counter("scores"),
    ALARMS: counter("alarms"),
}
_RECORDS, _ESTIMATE = 0, 1
_Keyed = tuple[str, tuple[int, bytes]]


class Followed(NamedTuple):
    """The outputs of `FollowUp`: PCollections of rows, dictionaries with the group and

    - flows: realization, time, from, to, mean, lower, upper;
    - forecasts: realization, time, state, mean, standard_error, lower, upper;
    - scores: how the forecasts so far did: realization, horizon, forecasts, rmse, persistence, coverage;
    - alarms: realization, time, p_value, state, rate;
    - changes: along windows that do not overlap, how surely (p_value) and by how much (size) the matrix changed,
      `start` being that of the first window after it, and the number of windows;
    - rejected: realizations without flows, with the reason.
    """

    flows: Any
    forecasts: Any
    scores: Any
    alarms: Any
    changes: Any
    rejected: Any


class FollowUp(beam.PTransform):  # type: ignore[misc]
    """(records, estimates) to flows, forecasts and alarms: what `am.flows`, `forecast` and `am.alarms` say of
    each realization.

    The estimates are those that `EstimateTransitions` made of the same records. In a stream each refresh hands
    out the flows of the steps since the last one, the forecast of the next `forecast` steps and how the last
    ones did, and alarms for counts that came since. `alarms` is the part of steps that raise one where nothing
    happened. Records that are none are left to `EstimateTransitions`. Other arguments are those of that.

    >>> import aggmc_beam as am
    >>> from aggmc_beam.beam import EstimateTransitions
    >>> y, _ = am.simulate([[0.9, 0.1], [0.3, 0.7]], steps=50, population=100, seed=1)
    >>> rows = [{"realization": 0, "time": t, "counts": y[0, t].tolist()} for t in range(50)]
    >>> with beam.Pipeline("FnApiRunner") as p:
    ...     records = p | beam.Create(rows)
    ...     found = records | EstimateTransitions(["in", "out"], population=100)
    ...     told = (records, found.estimates) | FollowUp(["in", "out"], forecast=1)
    ...     _ = told.forecasts | beam.Map(lambda row: print(row["time"], row["state"], round(row["mean"])))
    50 in 75
    50 out 25
    """

    def __init__(
        self,
        states: Sequence[str],
        flows: bool = True,
        forecast: int | None = None,
        alarms: float | None = None,
        **options: Any,
    ) -> None:
        super().__init__()
        self._of(make_plan(states, **options), flows, forecast, alarms)

    @classmethod
    def of_plan(cls, plan: Plan) -> FollowUp:
        """What `output` of a plan's config asks for."""
        made = cls.__new__(cls)
        beam.PTransform.__init__(made)
        output = plan.config.output
        made._of(plan, output.flows, output.forecast, output.alarms)
        return made

    def _of(self, plan: Plan, flows: bool, forecast: int | None, alarms: float | None) -> None:
        if forecast is not None and forecast < 1:
            raise InputError(f"forecast must be a number of steps of at least 1; got {forecast!r}")
        if alarms is not None and not 0 < alarms < 1:
            raise InputError(f"alarms must be a rate between 0 and 1, such as 0.01; got {alarms!r}")
        schema = plan.schema
        self.plan = plan
        self.wanted = Wanted(flows, forecast, alarms, tuple(schema.group_by), schema.clock)

    def expand(self, inputs: tuple[Any, Any]) -> Followed:
        records, estimates = inputs
        if not isinstance(records.windowing.windowfn, GlobalWindows):
            raise InputError(
                "flows and forecasts go on over windows; put the records into beam.window.GlobalWindows()"
            )
        types = {BLOCKS: tuple[int, Block], REJECTED: Any, NOTICED: dict[str, int]}
        gathered = records | "Gather" >> outputs(Gather(self.plan, SHARDS), types)
        keyed = (
            gathered[BLOCKS] | "By group" >> beam.FlatMapTuple(_by_group).with_output_types(_Keyed),
            estimates | "To all" >> beam.FlatMap(_to_all_shards).with_output_types(_Keyed),
        ) | "Both" >> beam.Flatten()
        tags = (FLOWS, FORECASTS, SCORES, ALARMS, CHANGES, REJECTED)
        kinds = dict.fromkeys(tags, dict[str, Any])
        if records.is_bounded:
            met = keyed | "Meet" >> beam.GroupByKey()
            some = (
                met
                | "Some" >> beam.FlatMapTuple(_some).with_output_types(tuple[str, bytes])
                | "Of a group" >> beam.GroupByKey()
                | "Few" >> beam.MapTuple(_few).with_output_types(tuple[str, bytes])
            )
            found = met | "Tell" >> outputs(TellAll(self.wanted), kinds, beam.pvalue.AsDict(some))
        else:
            timing = Timing(simulated=has_simulated_clock(records))
            found = keyed | "Tell" >> outputs(TellNew(self.wanted, timing), kinds)
        return Followed(*(found[tag] for tag in tags))


def asks(output: Output) -> bool:
    """Whether a config wants anything of single realizations."""
    return output.flows or output.forecast is not None or output.alarms is not None


def _by_group(shard: int, block: Block) -> Iterator[_Keyed]:
    records = block.records
    for number, group in enumerate(records.groups):
        own = block.take(np.flatnonzero(records.group == number))
        if len(own):
            yield _key(group, shard), (_RECORDS, encode_block(Block(own.records)))


def _to_all_shards(estimate: Estimate) -> Iterator[_Keyed]:
    group = tuple(map(str, (estimate.group or {}).values()))
    line = estimate.to_json().encode()
    for shard in range(SHARDS):
        yield _key(group, shard), (_ESTIMATE, line)


def _key(group: Group, shard: int) -> str:
    return json.dumps([list(group), shard], ensure_ascii=False)


def _some(key: str, values: Iterable[tuple[int, bytes]]) -> Iterator[tuple[str, bytes]]:
    """Of a shard the realizations from which habits of the group may be learned."""
    blocks = [decode_block(data).records for kind, data in values if kind == _RECORDS]
    if blocks:
        yield json.dumps(json.loads(key)[0], ensure_ascii=False), _sampled(blocks)


def _few(group: str, shards: Iterable[bytes]) -> tuple[str, bytes]:
    return group, _sampled([decode_block(data).records for data in shards])


def _sampled(blocks: Sequence[Records]) -> bytes:
    records = joined_records(blocks)
    names = {s.name for s in sample(series_of(records))}
    kept = np.array([str(name) in names for name in records.names])
    own = records.take(np.flatnonzero(kept[records.realization])).without_unused_names()
    return encode_block(Block(own))


class TellAll(beam.DoFn):  # type: ignore[misc]
    """All records and estimates of a key to rows."""

    def __init__(self, wanted: Wanted) -> None:
        self.wanted = wanted

    def process(
        self, element: tuple[str, Iterable[tuple[int, bytes]]], some: Mapping[str, bytes]
    ) -> Iterator[Any]:
        key, values = element
        blocks, estimates = [], []
        for kind, data in values:
            if kind == _RECORDS:
                blocks.append(decode_block(data).records)
            else:
                estimates.append(Estimate.from_json(data.decode()))
        if blocks and estimates:
            few = decode_block(some[json.dumps(json.loads(key)[0], ensure_ascii=False)]).records
            _, told = Live().tell(blocks, newest(estimates), self.wanted, sample(series_of(few)))
            yield from rows_of(told)
        if estimates and json.loads(key)[1] == 0:
            yield from change_of(newest(estimates))


class TellNew(beam.DoFn):  # type: ignore[misc]
    """In a stream: what is new, whenever estimates were refreshed."""

    BLOCKS = BagStateSpec("follow_blocks", BlockCoder())
    ESTIMATES = BagStateSpec("follow_estimates", EstimateCoder())
    LIVE = ReadModifyWriteStateSpec("follow_live", LiveCoder())
    SETTLED = TimerSpec("follow_settled", TimeDomain.REAL_TIME)
    END = TimerSpec("follow_end", TimeDomain.WATERMARK)

    def __init__(self, wanted: Wanted, timing: Timing) -> None:
        self.wanted, self.timing = wanted, timing

    def process(
        self,
        element: _Keyed,
        blocks: Any = beam.DoFn.StateParam(BLOCKS),
        estimates: Any = beam.DoFn.StateParam(ESTIMATES),
        settled: Any = beam.DoFn.TimerParam(SETTLED),
        end: Any = beam.DoFn.TimerParam(END),
    ) -> None:
        kind, data = element[1]
        if kind == _RECORDS:
            blocks.add(decode_block(data))
        else:
            estimates.add(Estimate.from_json(data.decode()))
            settled.set(self.timing.soon(SETTLE))
        end.set(HEALTH_ENDS)

    @on_timer(SETTLED)  # type: ignore[untyped-decorator]
    def settle(
        self,
        key: Any = beam.DoFn.KeyParam,
        blocks: Any = beam.DoFn.StateParam(BLOCKS),
        estimates: Any = beam.DoFn.StateParam(ESTIMATES),
        live: Any = beam.DoFn.StateParam(LIVE),
    ) -> Iterator[Any]:
        known = list(estimates.read())
        if not known:
            return  # the stream has ended
        kept = newest(known)
        estimates.clear()
        for one in [kept] if isinstance(kept, Estimate) else kept:
            estimates.add(one)
        arrived = [b.records for b in blocks.read()]
        if arrived:
            state, told = (live.read() or Live()).tell(arrived, kept, self.wanted)
            blocks.clear()
            live.write(state)
            yield from rows_of(told)
        if json.loads(key)[1] == 0:  # once for all shards
            yield from change_of(kept)

    @on_timer(END)  # type: ignore[untyped-decorator]
    def finish(
        self,
        key: Any = beam.DoFn.KeyParam,
        blocks: Any = beam.DoFn.StateParam(BLOCKS),
        estimates: Any = beam.DoFn.StateParam(ESTIMATES),
        live: Any = beam.DoFn.StateParam(LIVE),
    ) -> Iterator[Any]:
        """The stream has ended, or the job is drained."""
        yield from self.settle(key, blocks, estimates, live)
        for kept in (blocks, estimates, live):
            kept.clear()


def newest(estimates: Iterable[Estimate]) -> Estimate | Estimates:
    """Of all refreshes of a group the newest, cell by cell; of windows the last ones."""
    latest: dict[int | None, Estimate] = {}
    for e in sorted(estimates, key=lambda e: e.refresh):
        latest[e.cell] = e
    found = [latest[cell] for cell in sorted(latest, key=lambda c: -(2**62) if c is None else c)]
    if found[0].window is not None:
        found = found[-WINDOWS:]
    return next(iter(by_group(found).values()))


def change_of(found: Estimate | Estimates) -> Iterator[Any]:
    """A row for the change along windows, if these are windows of which one can be told."""
    items = [] if isinstance(found, Estimate) or found[0].window is None else apart(found)
    try:
        changed = change(items)
    except InputError:  # too few windows, or none that can be compared
        return
    row = {**(items[0].group or {}), "start": (changed.window or {}).get("start")}
    row |= {"p_value": changed.p_value, "size": changed.size, "windows": len(items)}
    yield beam.pvalue.TaggedOutput(CHANGES, row)


def rows_of(told: Told) -> Iterator[Any]:
    """All rows, each with the tag of its output."""
    tagged = ((FLOWS, told.flows), (FORECASTS, told.forecasts), (SCORES, told.scores), (ALARMS, told.alarms))
    for tag, tables in tagged:
        for table in tables:
            rows = _rows(table)
            TOLD[tag].inc(len(rows))
            yield from (beam.pvalue.TaggedOutput(tag, row) for row in rows)
    for realization, why in told.without.items():
        rejected = {
            "record": {"realization": realization},
            "reason": f"it has no flows: {why}",
            "source": None,
        }
        yield beam.pvalue.TaggedOutput(REJECTED, rejected)


def _rows(table: Table) -> list[dict[str, Any]]:
    columns: Mapping[str, list[Any]] = {name: values.tolist() for name, values in table.items()}
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]

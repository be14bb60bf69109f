"""EstimateTransitions: records in, transition matrices out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import apache_beam as beam
from apache_beam.transforms.window import GlobalWindows

from aggmc_beam.beam.combine import SumsCombineFn
from aggmc_beam.beam.dead_letters import WithErrorHandler
from aggmc_beam.beam.estimate import Estimate
from aggmc_beam.beam.exact import REJECTED, SHARDS
from aggmc_beam.beam.guard import ByRealization
from aggmc_beam.beam.outputs import outputs, typed
from aggmc_beam.beam.parsing import ParseRecords
from aggmc_beam.beam.plan import make_plan, plan_of
from aggmc_beam.beam.timing import Timing
from aggmc_beam.beam.transforms import EstimateSums, SumElements
from aggmc_beam.beam.unbounded import Refresh
from aggmc_beam.config import Config
from aggmc_beam.config.model import Stream
from aggmc_beam.errors import InputError
from aggmc_beam.estimators.registry import CELLS, GROUPS
from aggmc_beam.estimators.structure import Structure
from aggmc_beam.noise import Noise
from aggmc_beam.records import Record

GLOBAL, INPUT = "global", "input"


class Estimated(NamedTuple):
    """The outputs of `EstimateTransitions`: PCollections of `Estimate`, of dictionaries with the record,
    the reason and the source, and from a stream of its health (None from bounded data)."""

    estimates: Any
    rejected: Any
    health: Any = None


class EstimateTransitions(WithErrorHandler):
    """Estimates of the transition matrix behind a PCollection of records.

    Records are dictionaries, Beam rows, named tuples, dataclasses, JSON text, Pub/Sub messages or Arrow tables with
    a realization, a time and counts, or (key, record) pairs, of which the key is left out. From bounded data comes
    one estimate for each group (and cell of the chain), whatever the order and however often a record is repeated.
    From unbounded data the estimates are refreshed: `stream` says how often, how late a record may come and how
    long a silent realization is known.

    states: names, in the order of the counts. noise, population, estimator, chain, level, lags, missing, values,
    structure, pooling: as for `am.estimate`; groups can be pooled of bounded data only. realization, time, counts,
    population_column, group_by: names of fields; `counts` is one field with a list, or one field per state. step,
    origin: length of a time step, a number or a duration such as "1h" for time stamps, and where steps begin.

    windowing: "global" makes estimates of all records. With "input" there are estimates for each of the windows that
    elements have, which they tell in `window`; a pair of records belongs to a window if both do. Of unbounded data
    those come as the pipeline's triggers say, and repeated records are counted, not left out.

    `with_error_handler(handler)` gives what is in `.rejected` to an `ErrorHandler` of Beam too, as `RejectedRow`s.

    >>> import aggmc_beam as am
    >>> rows = [{"realization": 0, "time": t, "counts": c}
    ...         for t, c in enumerate([[3, 7], [4, 6], [2, 8], [5, 5], [4, 6], [3, 7]])]
    >>> with beam.Pipeline("FnApiRunner") as p:
    ...     found = p | beam.Create(rows) | EstimateTransitions(["in", "out"], population=10, estimator="mom")
    ...     _ = found.estimates | beam.Map(lambda e: print(e.counts["pairs"], e.transition_matrix.shape))
    5 (2, 2)
    """

    def __init__(
        self,
        states: Sequence[str],
        noise: Noise | None = None,
        population: float | str = "estimate",
        estimator: str = "auto",
        chain: Any = "stationary",
        level: float = 0.95,
        lags: int = 2,
        realization: str = "realization",
        time: str = "time",
        counts: str | Sequence[str] = "counts",
        population_column: str | None = None,
        group_by: Sequence[str] = (),
        step: int | str = 1,
        origin: int | None = None,
        replicates: int | None = None,
        block: int | None = None,
        max_rejected: int | float | None = None,
        stream: Stream | None = None,
        shards: int | None = None,
        windowing: str = GLOBAL,
        missing: str = "reject",
        values: str = "counts",
        pooling: str = CELLS,
        structure: Structure | None = None,
    ) -> None:
        super().__init__()
        if windowing not in (GLOBAL, INPUT):
            raise InputError(f"windowing must be 'global' or 'input'; got {windowing!r}")
        if windowing == INPUT and stream is not None:
            raise InputError("with windowing='input' the pipeline's own triggers tell when estimates come; "
                             "leave `stream` out")  # fmt: skip
        if not isinstance(stream, Stream | None):
            raise InputError(f"stream must be Stream(refresh=..., ...); got {stream!r}")
        plan = make_plan(
            states, noise, population, chain, realization, time, counts, population_column, group_by, step, origin,
            replicates, block, max_rejected, missing, values,
        )  # fmt: skip
        more = replace(plan.config.uncertainty, level=level)
        config = replace(
            plan.config, estimator=estimator, lags=lags, pooling=pooling, uncertainty=more, stream=stream
        )
        self.plan = replace(plan, config=config)
        if structure is not None:
            self.plan = replace(self.plan, chosen=replace(self.plan.settings, structure=structure))
        self.shards, self.windowing = shards, windowing

    @classmethod
    def from_config(cls, config: Config, shards: int | None = None) -> EstimateTransitions:
        """With all settings of a config whose states are listed."""
        made = cls.__new__(cls)
        beam.PTransform.__init__(made)
        made.plan, made.shards, made.windowing = plan_of(config), shards, GLOBAL
        return made

    def expand(self, records: Any) -> Estimated:
        self._check_windows(records)
        found = self._estimated(records)
        return found._replace(rejected=self._handed_over(found.rejected))

    def _estimated(self, records: Any) -> Estimated:
        if records.is_bounded:
            found = records | "Sum" >> SumElements(self.plan, self.shards or SHARDS)
            return Estimated(tuple(found) | "Estimate" >> EstimateSums(self.plan), found.rejected)
        if self.plan.settings.pooling == GROUPS:
            raise InputError(
                "pooling 'groups' needs the sums of all groups at once, which unbounded records never have; leave it "
                "out, or give bounded records"
            )
        parsed = records | "Parse" >> ParseRecords(self.plan.schema)
        if self.windowing == INPUT:
            return self._in_windows(parsed)
        return Estimated(*(parsed | "Refresh" >> Refresh(self.plan)))

    def _check_windows(self, records: Any) -> None:
        windows = records.windowing.windowfn
        if isinstance(windows, GlobalWindows):
            return
        if self.windowing == GLOBAL:
            raise InputError(
                f"the records are in {type(windows).__name__}; make estimates of each window by windowing='input', "
                "or of all of them after beam.WindowInto(beam.window.GlobalWindows())"
            )
        if windows.is_merging():
            raise InputError(
                f"{type(windows).__name__} are merged after records are in them, so that no window tells which pairs "
                "it holds; use fixed or sliding windows"
            )

    def _in_windows(self, parsed: Any) -> Estimated:
        """Estimates of unbounded records, by the windows and triggers that they have. One element is one record: that
        is what triggers count."""
        types = {"records": tuple[str, Record], REJECTED: dict[str, Any]}
        door = outputs(ByRealization(self.plan, Timing.of(self.plan)), types, main="records")
        sane = typed(parsed.records | "By realization" >> door, types)
        fn = SumsCombineFn.of_plan(self.plan)
        estimates = (
            sane.records
            | "Records" >> beam.Values().with_output_types(Record)
            | "Sum" >> beam.CombineGlobally(fn).without_defaults()
            | "Estimate" >> Estimate.with_settings(self.plan.settings)
        )
        rejected = (parsed.rejected, sane[REJECTED]) | "All rejected" >> beam.Flatten()
        return Estimated(estimates, rejected)

"""A config on a Beam runner: files in, the same output as the local engine's."""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from operator import add
from pathlib import Path
from typing import Any

import apache_beam as beam
import numpy as np
from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import GoogleCloudOptions, PipelineOptions

from aggmc_beam.beam.exact import SHARDS, Reach, Summed, join_reaches, of_groups
from aggmc_beam.beam.files import File, is_local, opened
from aggmc_beam.beam.follow_up import asks
from aggmc_beam.beam.follow_up_files import FollowFiles, follow_stream
from aggmc_beam.beam.health import WriteHealth
from aggmc_beam.beam.lost import fail_when_lost
from aggmc_beam.beam.parsing import ParseRecords
from aggmc_beam.beam.pieces import SumFiles
from aggmc_beam.beam.plan import open_plan, plan_of
from aggmc_beam.beam.sharing import with_pooling
from aggmc_beam.beam.sinks import WriteEstimates, WriteRejected, need_client, parquet_frame
from aggmc_beam.beam.transforms import EstimateBuckets, SumElements, check_counts, estimates_of, total_counts
from aggmc_beam.beam.unbounded import Refresh
from aggmc_beam.beam.watch import WatchFiles
from aggmc_beam.config import Config, Input
from aggmc_beam.config.model import BigQuery
from aggmc_beam.errors import InputError
from aggmc_beam.fit.drawing import advice
from aggmc_beam.fit.groups import by_group
from aggmc_beam.ledger import Ledger
from aggmc_beam.local import output
from aggmc_beam.local.blocks import Place, RowCounts
from aggmc_beam.local.engine import Result
from aggmc_beam.local.explain import CONFLICT, Rejection, explain
from aggmc_beam.local.plan import Plan
from aggmc_beam.local.reasons import Met, Reasons, key_of
from aggmc_beam.local.staging import Staging, order
from aggmc_beam.local.unchanged import check_unchanged, stamps
from aggmc_beam.result import Estimate
from aggmc_beam.sums.records import Group
from aggmc_beam.sums.state import AggregationState

SKIPPED = EstimateBuckets.SKIPPED
#: The number of a file, a row of it if rows have numbers, why it was not used, and the row.
_Rejected = tuple[int, int | None, str, Any]


def run(config: Config, given: Mapping[str, Any], arguments: Sequence[str] = ()) -> None:
    """Run a config with Beam's options, and wait for its end; `InputError` if the data are at fault."""
    try:
        if config.input.endless:
            start(config, arguments).wait_until_finish()
            return
        with fail_when_lost(), beam.Pipeline(options=pipeline_options(arguments)) as pipeline:
            if config.input.bigquery is not None:
                build_from_table(pipeline, plan_of(config), given)
            else:
                build(pipeline, *open_plan(config), given)
    except Exception as error:
        raise told(error) from error


def pipeline_options(arguments: Sequence[str], source: Input | None = None) -> PipelineOptions:
    """Beam's options; `source` is that of a stream.

    Plain DirectRunner would try several runners; so it is pinned to the one that can do the work: two
    that are part of Beam, and for a watched folder Prism, which Beam downloads unless
    `--prism_location` names it.
    """
    given = [a for a in arguments if a != "--runner=DirectRunner"]
    streaming = source is not None
    if not any(a.split("=")[0] == "--runner" for a in given):
        watching = source is not None and source.watch is not None
        runner = "PrismRunner" if watching else "BundleBasedDirectRunner" if streaming else "FnApiRunner"
        given = [f"--runner={runner}", *given]
    if "--runner=BundleBasedDirectRunner" in given and source is not None and source.watch is not None:
        raise InputError("BundleBasedDirectRunner cannot watch a folder; PrismRunner, Flink and Dataflow can")
    return PipelineOptions([*given, *(["--streaming"] if streaming else [])])


def start(config: Config, arguments: Sequence[str] = ()) -> Any:
    """Start the pipeline of an unbounded run; what Beam hands back, to wait for or to cancel."""
    pipeline = beam.Pipeline(options=pipeline_options(arguments, config.input))
    plan = plan_of(config)
    read = pipeline | "Read" >> ReadStream(plan)
    found = read | "Estimate" >> Refresh(plan)
    if asks(config.output):
        follow_stream(plan, read[0], found.estimates)
    _ = found.estimates | "Write" >> WriteEstimates(config.output, streaming=True)
    _ = found.rejected | "Write rejected" >> WriteRejected(config.output.directory)
    _ = found.health | "Write health" >> beam.ParDo(WriteHealth(config.output.directory))
    return pipeline.run()


class ReadStream(beam.PTransform):  # type: ignore[misc]
    """The unbounded input of a config to `Parsed` records."""

    def __init__(self, plan: Plan) -> None:
        super().__init__()
        self.plan = plan

    def expand(self, pipeline: Any) -> Any:
        pubsub = self.plan.config.input.pubsub
        if pubsub is None:
            return pipeline | "Watch" >> WatchFiles(self.plan)
        from apache_beam.io.gcp.pubsub import ReadFromPubSub

        read = ReadFromPubSub(pubsub.topic, pubsub.subscription, timestamp_attribute=pubsub.timestamp)
        return pipeline | "Pub/Sub" >> read | "Parse" >> ParseRecords(self.plan.schema)


def told(error: Exception) -> Exception:
    """The `InputError` behind what Beam raised, if there is one."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, InputError):
            return InputError(_plain(str(seen)))
        seen = seen.__cause__ or seen.__context__
    found = re.search(r"aggmc_beam\.errors\.InputError: (.+)", str(error))
    return InputError(_plain(found[1])) if found else error


def _plain(text: str) -> str:
    return re.sub(r"( \[while running .*|\\n.*)$", "", text.splitlines()[0]).strip()


def build(pipeline: Any, plan: Plan, files: list[File], given: Mapping[str, Any]) -> None:
    """The whole pipeline of a bounded run."""
    config = plan.config
    if config.input.resume is not None:
        raise InputError("input.resume needs the local engine; a Beam run reads all files anew")
    numbered = {f.number: f.path for f in files}
    found = pipeline | "Sums" >> SumFiles(plan, files)
    rejections = (
        found.places | "By file" >> beam.GroupByKey() | "Explain" >> beam.ParDo(Explain(plan, numbered))
    )
    estimates = _build_output(pipeline, plan, found, rejections, [f.path for f in files], given)
    if asks(config.output):
        _ = estimates | "Follow up" >> FollowFiles(plan, files)


def build_from_table(pipeline: Any, plan: Plan, given: Mapping[str, Any]) -> None:
    """The whole pipeline of a run over rows of BigQuery."""
    source = plan.config.input.bigquery
    assert source is not None
    if asks(plan.config.output):
        raise InputError(
            "output.flows, output.forecast and output.alarms need files, not input.bigquery; in a pipeline of your "
            "own the transform FollowUp makes them of any records"
        )
    rows = pipeline | "Read" >> bigquery_source(source, pipeline.options.view_as(GoogleCloudOptions))
    found = rows | "Sums" >> SumElements(plan, SHARDS)
    rejections = found.rejected | "Without rows" >> beam.Map(
        lambda one: (0, None, one["reason"], one["record"])
    ).with_output_types(tuple[int, None, str, Any])
    _build_output(pipeline, plan, found, rejections, [f"BigQuery {source.table or source.query}"], given)


def bigquery_source(source: BigQuery, options: GoogleCloudOptions) -> Any:
    """Rows of a table or query, by an export to Cloud Storage."""
    need_client("input.bigquery", "google.cloud.bigquery")
    if not (options.temp_location or "").startswith("gs://"):
        raise InputError(
            "input.bigquery exports rows to Cloud Storage: add --temp_location=gs://BUCKET/PATH to Beam's options"
        )
    from apache_beam.io.gcp.bigquery import ReadFromBigQuery

    if source.query is not None:
        return ReadFromBigQuery(query=source.query, use_standard_sql=True)
    if not re.fullmatch(r"(.+[:.])?\w+\.[\w$-]+", source.table or ""):
        raise InputError(f"input.bigquery.table is {source.table!r}, not project:dataset.table")
    return ReadFromBigQuery(table=source.table)


def _build_output(
    pipeline: Any, plan: Plan, found: Summed, rejections: Any, sources: list[str], given: Mapping[str, Any]
) -> Any:
    """Estimates and files of a bounded run; the estimates, one by one."""
    config = plan.config
    noticed = beam.pvalue.AsSingleton(total_counts(found))
    reasons = beam.pvalue.AsSingleton(rejections | "Reasons" >> beam.CombineGlobally(CommonReasons(sources)))
    estimated = found.states | "Estimate" >> beam.ParDo(EstimateBuckets(plan), noticed, reasons).with_outputs(
        SKIPPED, main="estimates"
    )
    estimates = with_pooling(plan.settings, found.states, estimated.estimates)
    listed = estimates | "Each" >> beam.FlatMapTuple(estimates_of).with_output_types(Estimate)
    _ = listed | "Sinks" >> WriteEstimates(config.output, streaming=False, files=False)
    _ = (
        pipeline
        | "Once" >> beam.Create([None])
        | "Write"
        >> beam.ParDo(
            WriteRun(plan, dict(given), sources),
            beam.pvalue.AsIter(found.states),
            beam.pvalue.AsDict(estimates),
            beam.pvalue.AsDict(estimated[SKIPPED]),
            beam.pvalue.AsIter(rejections),
            noticed,
            beam.pvalue.AsIter(found.reaches),
        )
    )
    return listed


class Explain(beam.DoFn):  # type: ignore[misc]
    """(file, [(row, reason)]) to rejections with the rows as they stand in the file."""

    def __init__(self, plan: Plan, paths: dict[int, str]) -> None:
        self.plan, self.paths = plan, paths

    def process(self, element: tuple[int, Iterable[tuple[int, str]]]) -> Iterator[_Rejected]:
        file, found = element
        counts, conflicts = RowCounts(), []
        for row, reason in found:
            if reason == CONFLICT:
                conflicts.append(row)
                continue
            counts.places.append(Place(np.zeros(1, np.int64), np.array([row])))
            if reason:
                counts.reasons[0, row] = reason
        counts.conflicts.append(Place(np.zeros(len(conflicts), np.int64), np.array(conflicts, np.int64)))
        with opened(self.plan.config, File(file, self.paths[file])) as source:
            assert source is not None
            for r in explain([source], self.plan.schema, counts):
                yield file, r.row, r.reason, r.record


class WriteRun(beam.DoFn):  # type: ignore[misc]
    """The one step that writes: all files of a run, in their final order."""

    def __init__(self, plan: Plan, given: dict[str, Any], paths: list[str]) -> None:
        self.plan, self.given, self.paths = plan, given, paths
        files = [] if plan.config.input.files is None else paths
        self.stamps = stamps(filter(is_local, files))

    def process(
        self,
        _: None,
        states: Iterable[tuple[int, AggregationState]],
        found: dict[Group, list[Estimate]],
        skipped: dict[Group, str],
        rejections: Iterable[_Rejected],
        noticed: dict[str, int],
        reaches: Iterable[list[Reach]],
    ) -> None:
        plan = self.plan
        check_unchanged(self.stamps)
        totals = {
            group: state.sums.of_group(number).total
            for _, state in states
            for number, group in enumerate(state.groups)
        }
        order = [group for group in join_reaches(reaches) if group in totals]
        used = sum(m.records for m in totals.values())
        if not used:
            raise InputError(_nothing(noticed, rejections))
        check_counts(plan, noticed)
        if not found:
            first = skipped[next(group for group in order if group in skipped)]
            alone = len(order) == 1
            raise InputError(first if alone else f"no group has enough data; the first one: {first}")
        ledger = {
            "files": len(self.paths),
            "rows": self._rows(noticed, used).to_dict(),
            "sorted": False,
            "records": used,
            "pairs": sum(m.pairs for m in totals.values()),
            "realizations": sum(m.counts.realizations for m in totals.values()),
            "groups": len(order),
            "duplicates": sum(m.counts.duplicates for m in totals.values()),
            "conflicting": noticed.get("conflicting", 0),
            "gaps": sum(m.gaps for m in totals.values()),
            "rejected": noticed.get("rejected", 0),
            "filled_with_zero": noticed.get("filled", 0),
            "incomplete": noticed.get("incomplete", 0),
            "skipped": {", ".join(group): skipped[group] for group in order if group in skipped},
            "advice": advice(
                by_group(e for one in found.values() for e in one).values(), plan.settings.pooling
            ),
        }
        estimates = [e for group in order for e in found.get(group, [])]
        whole = AggregationState(plan.spec)
        if plan.config.output.moments:
            whole = reduce(add, (state for _, state in states), whole)
            whole = of_groups(whole, np.array([whole.groups.index(group) for group in order]))
        if len(order) == 1:
            whole.count(order[0], rejected=noticed.get("rejected", 0))
        write(Result(estimates, {}, ledger, _sorted(rejections, self.paths), whole), plan.config, self.given)

    def _rows(self, noticed: dict[str, int], records: int) -> Ledger:
        """What became of every row; `Unbalanced` if one was lost, also on the way to the sums, which hold
        `records`."""
        used = noticed["used"] - (noticed["records"] - records)
        ends = (noticed.get(name, 0) for name in ("duplicate", "rejected"))
        return Ledger(noticed.get("rows", 0), used, *ends).check()


def _sorted(rejections: Iterable[_Rejected], paths: list[str]) -> Any:
    def listed() -> Iterator[Rejection]:
        for file, row, reason, record in sorted(rejections, key=_order):
            yield Rejection(paths[file], row, reason, record)

    return listed


class CommonReasons(beam.CombineFn):  # type: ignore[misc]
    """Rejections to the commonest reasons, as text."""

    def __init__(self, sources: list[str]) -> None:
        self.sources = sources

    def create_accumulator(self) -> Met:
        return {}

    def add_input(self, accumulator: Met, rejection: _Rejected) -> Met:
        file, row, reason, _ = rejection
        Reasons(accumulator).add(reason, self.sources[file], row or 0)
        return accumulator

    def merge_accumulators(self, accumulators: Iterable[Met]) -> Met:
        return sum(map(Reasons, accumulators), Reasons()).met

    def extract_output(self, accumulator: Met) -> str:
        return str(Reasons(accumulator))


def _nothing(noticed: dict[str, int], rejections: Iterable[_Rejected]) -> str:
    rows = noticed.get("rows", 0)
    if not rows:
        return "the input has no rows, only a header or nothing at all"
    first = min(rejections, key=_order, default=None)
    if first is None:
        return "no record is complete; see input.absent"
    place = "" if first[1] is None else f"file {first[0] + 1}, row {first[1]}; "
    return f"all {rows:,} rows were rejected; the first: {first[2]} ({place}see {key_of(first[2])})"


def _order(rejection: _Rejected) -> tuple[int, int, str]:
    """Of rows, that of files; of others, some order that is always the same."""
    file, row, _, record = rejection
    return (file, -1, json.dumps(record, default=str, sort_keys=True)) if row is None else (file, row, "")


def write(result: Result, config: Config, given: Mapping[str, Any]) -> None:
    """The output of a run, on any filesystem that Beam knows."""
    target = config.output.directory
    if is_local(target):
        output.write(result, config, given)
        if config.output.parquet:
            with Staging(target) as aside:
                parquet_frame(result.estimates).write_parquet(aside / "estimates.parquet")
        return
    with tempfile.TemporaryDirectory(prefix="aggmc-") as directory:
        near = replace(config, output=replace(config.output, directory=directory))
        paths = output.write(result, near, given)
        if config.output.parquet:
            paths.append(Path(directory) / "estimates.parquet")
            parquet_frame(result.estimates).write_parquet(paths[-1])
        for path in sorted(paths, key=order):
            with open(path, "rb") as source, FileSystems.create(f"{target.rstrip('/')}/{path.name}") as far:
                shutil.copyfileobj(source, far)


def read_back(config: Config) -> tuple[list[Estimate], dict[str, Any]]:
    """Estimates and ledger of a finished run whose directory is on this machine."""
    directory = Path(os.fspath(config.output.directory))
    lines = (directory / output.ESTIMATES).read_text(encoding="utf-8").splitlines()
    about = json.loads((directory / output.RUN).read_text(encoding="utf-8"))
    return [Estimate.from_json(line) for line in lines], about["ledger"]

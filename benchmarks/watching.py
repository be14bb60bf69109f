"""What leaves a worker: bytes that a pipeline shuffles and keeps, counted while it runs on FnApiRunner."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import apache_beam as beam
from apache_beam import coders
from apache_beam.metrics import Metrics
from apache_beam.pipeline import PipelineVisitor
from apache_beam.runners.common import DoFnSignature
from apache_beam.runners.direct.clock import RealClock
from apache_beam.runners.portability.fn_api_runner import execution, worker_handlers
from apache_beam.transforms import userstate
from apache_beam.utils.windowed_value import WindowedValue

#: The most that was kept of each (step, state, key).
State = dict[tuple[str, str, bytes], bytes]


class Encoded(beam.DoFn):  # type: ignore[misc]
    """Counts the bytes that elements of a collection take."""

    def __init__(self, name: str, coder: Any) -> None:
        self.coder = coder
        self.bytes, self.elements = Metrics.counter("bytes", name), Metrics.counter("elements", name)

    def process(
        self,
        element: Any,
        at: Any = beam.DoFn.TimestampParam,
        window: Any = beam.DoFn.WindowParam,
    ) -> None:
        self.bytes.inc(len(self.coder.encode(WindowedValue(element, at, (window,)))))
        self.elements.inc()


class Crossings(PipelineVisitor):  # type: ignore[misc]
    """The collections of a pipeline that a runner shuffles, and the stateful steps."""

    def __init__(self) -> None:
        self.found: dict[str, Any] = {}
        #: Coders of the states of each stateful step, by name.
        self.states: list[dict[str, Any]] = []

    def visit_transform(self, node: Any) -> None:
        transform = node.transform
        stateful = isinstance(transform, beam.ParDo) and DoFnSignature(transform.fn).is_stateful_dofn()
        if stateful or isinstance(transform, beam.GroupByKey):
            self.found[node.full_label] = node.inputs[0]
        if stateful:
            specs, _ = userstate.get_dofn_specs(transform.fn)
            self.states.append({spec.name: spec.coder for spec in specs})


@contextmanager
def watched(into: dict[str, Any]) -> Iterator[None]:
    """Within it, a pipeline that runs also counts the bytes that cross, in `into["metrics"]`."""
    original = beam.Pipeline.run
    busy = False

    def run(pipeline: Any, *given: Any, **options: Any) -> Any:
        nonlocal busy
        if busy:  # Beam runs a copy of the pipeline
            return original(pipeline, *given, **options)
        busy = True
        crossings = Crossings()
        pipeline.visit(crossings)
        for name, collection in crossings.found.items():
            window = collection.windowing.windowfn.get_window_coder()
            coder = coders.WindowedValueCoder(coders.registry.get_coder(collection.element_type), window)
            _ = collection | f"Measure {name}" >> beam.ParDo(Encoded(name, coder))
        try:
            result = original(pipeline, *given, **options)
        finally:
            busy = False
        into["result"], into["coders"] = result, crossings.states
        return result

    beam.Pipeline.run = run
    try:
        yield
    finally:
        beam.Pipeline.run = original
    into["metrics"] = defaultdict(dict)
    for found in into.pop("result").metrics().query()["counters"]:
        if found.key.metric.namespace in ("bytes", "elements"):
            into["metrics"][found.key.metric.name][found.key.metric.namespace] = found.committed


@contextmanager
def kept(into: State) -> Iterator[None]:
    """Within it, the most that is kept of each state of each key, in `into`."""
    original = worker_handlers.StateServicer.append_raw

    def append(servicer: Any, state_key: Any, data: bytes) -> Any:
        answer = original(servicer, state_key, data)
        if state_key.WhichOneof("type") == "bag_user_state":
            user = state_key.bag_user_state
            whole, _ = servicer.get_raw(state_key)
            at = (user.transform_id, user.user_state_id, user.key)
            if len(whole) >= len(into.get(at, b"")):
                into[at] = whole
        return answer

    worker_handlers.StateServicer.append_raw = append
    try:
        yield
    finally:
        worker_handlers.StateServicer.append_raw = original


class Ahead(RealClock):  # type: ignore[misc]
    """A clock by which every timer of processing time is due, also a cleared one, which has the last time."""

    def time(self) -> float:
        return 1e15


@contextmanager
def refreshed_once() -> Iterator[None]:
    """FnApiRunner does not wait for timers of processing time; within it they fire after their bundle."""
    original = execution.RealClock
    execution.RealClock = Ahead
    try:
        yield
    finally:
        execution.RealClock = original

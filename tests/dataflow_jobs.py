"""Dataflow jobs as they would be submitted, built offline by Beam's own Dataflow runner."""

from __future__ import annotations

import json
import runpy
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from apache_beam import coders
from apache_beam.options.pipeline_options import GoogleCloudOptions
from apache_beam.portability.api import beam_runner_api_pb2
from apache_beam.portability.common_urns import composites, primitives
from apache_beam.runners.dataflow import dataflow_runner
from apache_beam.runners.dataflow.internal import apiclient
from apache_beam.runners.pipeline_context import PipelineContext

ROOT = Path(__file__).parent.parent
IMAGE = "europe-docker.pkg.dev/my-project/images/aggmc:1"
OPTIONS = [
    "--runner=dataflow_jobs.DataflowRunner",
    "--project=my-project",
    "--region=europe-west1",
    "--temp_location=gs://bucket/tmp",
    "--staging_location=gs://bucket/staging",
    "--job_name=moves",
    f"--sdk_container_image={IMAGE}",
    "--sdk_location=container",
    "--no_auth",
    "--dry_run=True",
]
STREAM = {
    "states": ["home", "work"],
    "input": {"pubsub": {"subscription": "projects/my-project/subscriptions/counts"}, "step": "1h"},
    "noise": {"model": "binomial", "alpha": 0.5},
    "chain": {"window": {"size": 24}},
    "stream": {"refresh": "60s", "allowed_lateness": "10m", "state_ttl": "7d"},
    "output": {"directory": "gs://bucket/out", "pubsub": "projects/my-project/topics/moves"},
}
#: Names of the steps of `STREAM`; this file as a script writes them.
STEPS = Path(__file__).parent / "stored/stream_steps.json"
MADE: list[Any] = []


class DataflowRunner(dataflow_runner.DataflowRunner):
    """Beam's, which builds a job and keeps it here; `--dry_run` stops it before it is sent. Its name is the
    one by which Beam knows that options must be those of Dataflow."""

    def run_pipeline(self, pipeline: Any, options: Any, pipeline_proto: Any = None) -> Any:
        result = super().run_pipeline(pipeline, options, pipeline_proto)
        MADE.append(result.job)
        return result


def job(*arguments: str) -> Any:
    """The job that `pipelines/run.py` would submit, with its environment."""
    MADE.clear()
    runpy.run_path(str(ROOT / "pipelines/run.py"))["main"]([*arguments, *OPTIONS])
    [made] = MADE
    with tempfile.TemporaryDirectory() as staging:
        made.options.view_as(GoogleCloudOptions).staging_location = staging
        apiclient.DataflowApplicationClient(made.options, staging).create_job_description(made)
    return made


def stream_job(directory: Path) -> Any:
    """The job of `STREAM`."""
    path = directory / "run.yaml"
    path.write_text(json.dumps(STREAM), encoding="utf-8")
    return job(str(path))


class Edge(NamedTuple):
    """Data that leave a worker: the step, what of it, and the id of the coder."""

    step: str
    part: str
    coder: str


def edges(pipeline: Any) -> list[Edge]:
    """All data of a pipeline that are shuffled, or kept as state or timers."""
    found = []
    for step in pipeline.components.transforms.values():
        given = [pipeline.components.pcollections[i].coder_id for i in step.inputs.values()]
        if step.spec.urn == primitives.GROUP_BY_KEY.urn:
            found.append(Edge(step.unique_name, "input", given[0]))
        elif step.spec.urn == composites.COMBINE_PER_KEY.urn:
            payload = beam_runner_api_pb2.CombinePayload.FromString(step.spec.payload)
            found.append(Edge(step.unique_name, "accumulator", payload.accumulator_coder_id))
        elif step.spec.urn == primitives.PAR_DO.urn:
            payload = beam_runner_api_pb2.ParDoPayload.FromString(step.spec.payload)
            if payload.state_specs or payload.timer_family_specs:
                found.append(Edge(step.unique_name, "input", given[0]))
            for name, state in payload.state_specs.items():
                found += [Edge(step.unique_name, f"state {name}", i) for i in _coder_ids(state)]
            for name, timer in payload.timer_family_specs.items():
                found.append(Edge(step.unique_name, f"timer {name}", timer.timer_family_coder_id))
    return found


def _coder_ids(state: Any) -> list[str]:
    """The coders in a state's specification, whichever kind of state it is."""
    [spec] = [value for field, value in state.ListFields() if field.name.endswith("_spec")]
    return [value for field, value in spec.ListFields() if field.name.endswith("coder_id")]


def python_coders(pipeline: Any, coder_id: str) -> set[str]:
    """Names of the coders written in Python within a coder: ours, and Beam's that other languages lack."""
    found = pipeline.components.coders[coder_id]
    inner = set().union(*(python_coders(pipeline, i) for i in found.component_coder_ids))
    if found.spec.urn != "beam:coder:pickled_python:v1":
        return inner
    made = PipelineContext(pipeline.components).coders.get_by_id(coder_id)
    # A coder of mappings is told by what it is made of.
    parts = {type(c).__name__ for c in made._get_component_coders()} if _is_map(made) else set()
    return inner | parts | {type(made).__name__}


def _is_map(coder: Any) -> bool:
    return isinstance(coder, coders.MapCoder)


def payload(pipeline: Any, step: str) -> Any:
    """The payload of a ParDo."""
    [found] = [t for t in pipeline.components.transforms.values() if t.unique_name == step]
    return beam_runner_api_pb2.ParDoPayload.FromString(found.spec.payload)


def leaves(pipeline: Any) -> list[str]:
    """Labels of the steps that do something, sorted."""
    steps = pipeline.components.transforms.values()
    return sorted(t.unique_name for t in steps if not t.subtransforms and t.spec.urn)


if __name__ == "__main__":
    # Beam finds the runner by the name of this module.
    sys.modules["dataflow_jobs"] = sys.modules["__main__"]
    with tempfile.TemporaryDirectory() as here:
        names = leaves(stream_job(Path(here)).proto_pipeline)
    STEPS.write_text(json.dumps(names, indent=1) + "\n", encoding="utf-8")

"""What Dataflow would be given: job graphs of the batch and the streaming config, built offline."""

from __future__ import annotations

import json
from pathlib import Path

import frames
import pytest
from apache_beam.portability.api import beam_runner_api_pb2
from apache_beam.portability.common_urns import artifact_roles

pytest.importorskip("google.cloud.dataflow_v1beta3", reason="Beam's extra `gcp` is not installed")
import dataflow_jobs as jobs

from aggmc_beam.beam import coders as our_coders
from aggmc_beam.beam import stream_coders

STORED = Path(__file__).parent / "stored"
OURS = {
    name
    for name in (*vars(our_coders), *vars(stream_coders))
    if name.endswith("Coder") and not name.startswith("_")
}
OURS |= {"BlockCoder", "StateCoder"}
#: Coders in Python that write plain values without pickle.
PLAIN = {"MapCoder", "StrUtf8Coder", "VarIntCoder", "PaneInfoCoder"}
#: Edges where Beam itself decides, and what they carry.
BEAMS = {
    # The time stamp that a reshuffle keeps, which is one or none.
    ("Spread files/ReshufflePerKey/GroupByKey", "input"): {"FastPrimitivesCoder"},
    ("Sums/Spread/ReshufflePerKey/GroupByKey", "input"): {"FastPrimitivesCoder"},
    # The one key of a global combine, None; a dictionary of counts, which Beam writes as such.
    ("Total/CombinePerKey/GroupByKey", "input"): {"DeterministicFastPrimitivesCoderV2"},
    ("Total/CombinePerKey", "accumulator"): {"FastPrimitivesCoder"},
    # Here of text to numbers and text.
    ("Reasons/CombinePerKey/GroupByKey", "input"): {
        "DeterministicFastPrimitivesCoderV2",
        "FastPrimitivesCoder",
    },
    ("Reasons/CombinePerKey", "accumulator"): {"FastPrimitivesCoder"},
}


@pytest.fixture(scope="module")
def stream(tmp_path_factory):
    return jobs.stream_job(tmp_path_factory.mktemp("stream"))


@pytest.fixture(scope="module")
def batch(tmp_path_factory):
    directory = tmp_path_factory.mktemp("batch")
    path = frames.save(frames.wide(frames.counts()), directory / "data.csv")
    config = directory / "run.yaml"
    config.write_text(json.dumps(frames.config(path)), encoding="utf-8")
    return jobs.job(str(config), "--output_directory=gs://bucket/out", "--output_moments=true")


@pytest.mark.parametrize("kind", ["batch", "stream"])
def test_nothing_that_is_shuffled_or_kept_is_pickled(kind, request):
    pipeline = request.getfixturevalue(kind).proto_pipeline
    found = jobs.edges(pipeline)
    assert len(found) > 5
    for edge in found:
        names = jobs.python_coders(pipeline, edge.coder) - OURS - PLAIN
        assert names <= BEAMS.get((edge.step, edge.part), set()), (edge, names)


def test_batch_data_are_shuffled_by_our_coders(batch):
    pipeline = batch.proto_pipeline
    used = set().union(*(jobs.python_coders(pipeline, e.coder) for e in jobs.edges(pipeline)))
    assert {"BlockCoder", "StateCoder"} <= used


def test_streamed_data_and_state_are_stored_by_our_coders(stream):
    pipeline = stream.proto_pipeline
    used = set().union(*(jobs.python_coders(pipeline, e.coder) for e in jobs.edges(pipeline)))
    assert {"RecordCoder", "KnownCoder", "StatusCoder", "DeltaCoder", "SnapshotCoder"} <= used
    stored = {path.stem.split("-")[0].title() + "Coder" for path in STORED.glob("*.bin")}
    assert (used & OURS) <= stored, "bytes of each coder that a running job keeps are stored in tests/stored"


def test_a_stream_uses_state_and_event_time_timers_and_the_native_read(stream):
    pipeline = stream.proto_pipeline
    assert "beam:requirement:pardo:stateful:v1" in pipeline.requirements
    timers = {
        name: spec.time_domain
        for step in pipeline.components.transforms.values()
        if step.spec.urn == "beam:transform:pardo:v1"
        for name, spec in jobs.payload(pipeline, step.unique_name).timer_family_specs.items()
    }
    assert timers, "state expires by timers"
    assert beam_runner_api_pb2.TimeDomain.EVENT_TIME in timers.values()
    urns = {t.unique_name: t.spec.urn for t in pipeline.components.transforms.values()}
    assert "beam:transform:pubsub_write:v1" in urns.values()
    reads = [
        t for t in pipeline.components.transforms.values() if t.spec.urn == "beam:transform:pubsub_read:v1"
    ]
    assert not any(urn == "beam:transform:read:v1" for urn in urns.values())
    [read] = reads
    payload = beam_runner_api_pb2.PubSubReadPayload.FromString(read.spec.payload)
    assert payload.subscription == jobs.STREAM["input"]["pubsub"]["subscription"]


def test_a_stream_asks_for_the_streaming_engine_and_no_batch_does(stream, batch):
    asked = set(stream.proto.environment.experiments)
    assert {"enable_streaming_engine", "enable_windmill_service", "use_runner_v2"} <= asked
    assert stream.proto.type_.name == "JOB_TYPE_STREAMING"
    assert dict(stream.proto.environment.version)["job_type"] == "FNAPI_STREAMING"
    assert batch.proto.type_.name == "JOB_TYPE_BATCH"
    assert "enable_streaming_engine" not in batch.proto.environment.experiments


@pytest.mark.parametrize("kind", ["batch", "stream"])
def test_workers_run_the_one_image_and_install_nothing(kind, request):
    job = request.getfixturevalue(kind)
    [pool] = job.proto.environment.worker_pools
    assert [i.container_image for i in pool.sdk_harness_container_images] == [jobs.IMAGE]
    for environment in job.proto_pipeline.components.environments.values():
        staged = {
            beam_runner_api_pb2.ArtifactStagingToRolePayload.FromString(d.role_payload).staged_name
            for d in environment.dependencies
            if d.role_urn == artifact_roles.STAGING_TO.urn
        }
        # A list of versions, to be compared in the log; no code, no requirements, no pickled session.
        assert staged <= {"submission_environment_dependencies.txt"}


def test_options_of_a_run_are_shown_with_the_job(batch):
    shown = dict(batch.proto.environment.sdk_pipeline_options)["options"]
    assert shown["output_directory"] == "gs://bucket/out"


def test_steps_of_a_stream_keep_their_names(stream):
    """An update of a running job finds its state by these names. If one must change, say so in the
    changelog with its old name, and run `python tests/dataflow_jobs.py`."""
    stored = json.loads(jobs.STEPS.read_text(encoding="utf-8"))
    assert jobs.leaves(stream.proto_pipeline) == stored


def test_a_stream_needs_no_side_input(stream):
    """Dataflow codes side inputs by Beam's fallback coder; a stream that lives for months has none."""
    pipeline = stream.proto_pipeline
    for step in pipeline.components.transforms.values():
        if step.spec.urn == "beam:transform:pardo:v1":
            assert not jobs.payload(pipeline, step.unique_name).side_inputs, step.unique_name

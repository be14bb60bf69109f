"""The Flex Template: its metadata, its image, and the commands that build and launch it."""

from __future__ import annotations

import json
import re
import runpy
import shlex
import stat
from pathlib import Path

import apache_beam
import pytest
import yaml
from apache_beam.options.pipeline_options import PipelineOptions, WorkerOptions
from google.protobuf import json_format

from aggmc_beam.beam.options import AggmcOptions
from aggmc_beam.config.keys import keys
from aggmc_beam.config.kinds import Section
from aggmc_beam.config.model import Config
from tools import flex_template as template

types = pytest.importorskip("google.cloud.dataflow_v1beta3.types", reason="Beam's extra `gcp` is missing")

ROOT = Path(__file__).parent.parent
METADATA = json.loads((ROOT / template.PATH).read_text(encoding="utf-8"))
PARAMETERS = {p["name"]: p for p in METADATA["parameters"]}
WHERE = ["--project=my-project", "--region=europe-west1", "--bucket=my-bucket"]
launch = runpy.run_path(str(ROOT / "pipelines/launch.py"))


def test_the_metadata_are_up_to_date():
    assert (ROOT / template.PATH).read_text(encoding="utf-8") == template.page(), "run `make docs`"


def test_the_metadata_are_what_dataflow_reads():
    # Unknown fields, wrong types and unknown names of enumerations are errors here.
    read = json_format.ParseDict(METADATA, types.TemplateMetadata.pb()())
    assert len(read.parameters) == len(PARAMETERS) == len(METADATA["parameters"])
    assert {types.ParameterType(p.param_type).name for p in read.parameters} >= {"ENUM", "PUBSUB_TOPIC"}
    for parameter in read.parameters:
        assert re.fullmatch("[a-zA-Z][a-zA-Z0-9_]*", parameter.name)
        assert parameter.label
        assert parameter.help_text
        assert parameter.regexes
        if types.ParameterType(parameter.param_type).name == "ENUM":
            assert parameter.enum_options


@pytest.mark.parametrize("change", [{"colour": "red"}, {"paramType": "GUESS"}, {"isOptional": "yes"}])
def test_a_wrong_field_would_be_noticed(change):
    wrong = {**METADATA, "parameters": [{**METADATA["parameters"][0], **change}]}
    with pytest.raises(json_format.ParseError):
        json_format.ParseDict(wrong, types.TemplateMetadata.pb()())


def test_every_parameter_is_an_option_and_every_key_a_parameter():
    known = {**PipelineOptions([]).view_as(AggmcOptions).get_all_options(), **vars(WorkerOptions([]))}
    assert set(PARAMETERS) <= set(known)
    used = {k.option for k in keys() if not template.LEFT_OUT.fullmatch(k.path)}
    assert used | {"config", "sdk_container_image"} == set(PARAMETERS)
    assert [n for n, p in PARAMETERS.items() if not p["isOptional"]] == ["sdk_container_image"]


def values(plain, path=""):
    """(path, text) of all values in a config."""
    for name, value in plain.items():
        if isinstance(value, dict) and f"{path}{name}" not in ("chain", "noise"):
            yield from values(value, f"{path}{name}.")
        else:
            text = value if isinstance(value, str) else json.dumps(value)
            yield f"{path}{name}", text


def test_regexes_take_what_configs_hold():
    seen = 0
    for path in sorted((ROOT / "configs").glob("*.yaml")):
        plain = yaml.safe_load(path.read_text(encoding="utf-8"))
        if not isinstance(plain, dict) or set(plain) - set(Section(Config).schema["properties"]):
            continue  # of Beam YAML
        for key, text in values(plain):
            parameter = PARAMETERS.get(key.replace(".", "_"))
            if parameter is None or key in ("input.files", "output.directory"):
                continue  # on this machine in configs, in the cloud on Dataflow
            seen += 1
            assert all(re.fullmatch(r, text) for r in parameter["regexes"]), (path, key, text)
    assert seen > 20


@pytest.mark.parametrize(
    ("name", "value", "fits"),
    [
        ("input_files", "gs://bucket/*.csv", True),
        ("input_files", "[gs://a/1.csv, gs://a/2.csv]", True),
        ("input_files", "data/*.csv", False),
        ("input_pubsub_subscription", "projects/p/subscriptions/s", True),
        ("input_pubsub_subscription", "projects/p/topics/s", False),
        ("stream_refresh", "30s", True),
        ("stream_refresh", "30", False),
        ("output_bigquery", "p:d.t", True),
        ("output_bigquery", "d.t", False),
        ("output_moments", "yes", False),
        ("estimator", "auto", True),
        ("estimator", "automatic", False),
        ("population", "1e6", True),
        ("population", "estimate", True),
        ("population", "many", False),
        ("chain", "{cycle: 24}", True),
        ("input_step", "15m", True),
        ("sdk_container_image", "europe-docker.pkg.dev/p/r/aggmc:0.1", True),
        ("sdk_container_image", "localhost:5000/aggmc", False),
    ],
)
def test_regexes_tell_right_from_wrong(name, value, fits):
    assert all(re.fullmatch(r, value) for r in PARAMETERS[name]["regexes"]) is fits


def dockerfile():
    text = (ROOT / "pipelines/Dockerfile").read_text(encoding="utf-8")
    return [line.split(" ", 1) for line in text.splitlines() if line and line[0] not in "# "]


def test_the_image_is_pinned_and_has_the_beam_of_the_lock():
    launcher, base = [rest for word, rest in dockerfile() if word == "FROM"]
    assert re.fullmatch(r"gcr\.io/.*/python311-template-launcher-base:\w*\d{8}_RC\d+ AS launcher", launcher)
    assert base == f"apache/beam_python3.11_sdk:{apache_beam.__version__}"
    lock = (ROOT / "pipelines/requirements.lock").read_text(encoding="utf-8")
    assert f"\napache-beam=={apache_beam.__version__} " in lock


def test_the_image_holds_all_that_it_names_and_installs_nothing_later():
    lines = dockerfile()
    ignored = (ROOT / "pipelines/Dockerfile.dockerignore").read_text(encoding="utf-8").splitlines()
    for word, rest in lines:
        if word == "COPY" and not rest.startswith("--from"):
            for source in rest.split()[:-1]:
                assert (ROOT / source).exists(), source
                assert f"!{source}" in ignored, source
    env = dict(rest.split("=") for word, rest in lines if word == "ENV")
    assert env.pop("FLEX_TEMPLATE_PYTHON_PY_FILE") == "/template/run.py"
    assert not [name for name in env if name.startswith("FLEX_TEMPLATE")]
    assert ["COPY", "pipelines/run.py ./"] in lines
    assert ["WORKDIR", "/template"] in lines
    assert ["ENTRYPOINT", '["/opt/apache/beam/boot"]'] in lines
    [installed] = [rest for word, rest in lines if word == "RUN" and "-r " in rest]
    assert "--require-hashes" in installed


def pins(path):
    return dict(re.findall(r"^([\w.-]+)==([^\s;]+)", (ROOT / path).read_text(encoding="utf-8"), re.M))


def test_the_image_has_versions_that_are_tested():
    tested = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    found = pins("pipelines/requirements.lock")
    assert {"apache-beam", "numpy", "polars", "scipy", "google-cloud-pubsub"} <= set(found)
    for name, version in found.items():
        # One package may stand there once for each range of Python versions.
        assert re.search(rf"^{re.escape(name)}=={re.escape(version)}[ ;]", tested, re.M), name
    assert not {"pytest", "mypy", "ruff"} & set(found)


def printed(capsys, *given, code=0):
    assert launch["main"](list(given)) == code
    return [shlex.split(line) for line in capsys.readouterr().out.splitlines()]


def unjoined(text):
    """What gcloud makes of a list of pairs, by the rule of its `topic escaping`."""
    separator = ","
    if text.startswith("^"):
        _, separator, text = text.split("^", 2)
    return dict(pair.split("=", 1) for pair in text.split(separator))


def flag(command, name):
    [found] = [word.split("=", 1)[1] for word in command if word.startswith(f"--{name}=")]
    return found


def test_build_makes_the_image_and_a_template_of_it(capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    image, made = printed(capsys, "build", *WHERE, "--tag=7")
    name = "europe-west1-docker.pkg.dev/my-project/aggmc/aggmc:7"
    assert image[:4] == ["gcloud", "builds", "submit", "."]
    assert flag(image, "substitutions") == f"_IMAGE={name}"
    steps = yaml.safe_load((ROOT / flag(image, "config")).read_text(encoding="utf-8"))
    assert steps["images"] == ["${_IMAGE}"]
    assert made[:5] == [
        "gcloud",
        "dataflow",
        "flex-template",
        "build",
        "gs://my-bucket/templates/aggmc-7.json",
    ]
    assert flag(made, "image") == name
    assert (ROOT / flag(made, "metadata-file")).exists()


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "a run's config.yaml"
    path.write_text(
        "{states: [a, b], input: {pubsub: {subscription: projects/my-project/subscriptions/s}}}",
        encoding="utf-8",
    )
    return str(path)


def test_run_copies_the_config_and_passes_values_through_shell_and_gcloud(capsys, config):
    awkward = {"states": '[it\'s, "b;c", $HOME]', "input_columns_time": "a b|c", "name": "x=y,z"}
    given = [f"--parameter={name}={value}" for name, value in awkward.items()]
    copy, run = printed(capsys, "run", *WHERE, f"--config={config}", *given, "--max-workers=9")
    assert copy[:4] == ["gcloud", "storage", "cp", config]
    found = unjoined(flag(run, "parameters"))
    assert found.pop("config") == copy[4] == "gs://my-bucket/configs/aggmc.yaml"
    assert found.pop("sdk_container_image").endswith("/aggmc/aggmc:0.1.0")
    assert found == awkward
    assert "--enable-streaming-engine" in run
    assert "--update" not in run
    assert flag(run, "max-workers") == "9"
    assert flag(run, "template-file-gcs-location") == "gs://my-bucket/templates/aggmc-0.1.0.json"


def test_update_keeps_the_name_and_maps_steps(capsys, config):
    rename = ["--rename=Estimate/Refresh/Sum=Estimate/Refresh/Add", "--rename=A, b=B"]
    *_, update = printed(capsys, "update", *WHERE, f"--config={config}", "--job=moves", *rename)
    assert update[:5] == ["gcloud", "dataflow", "flex-template", "run", "moves"]
    assert "--update" in update
    mapped = unjoined(flag(update, "transform-name-mappings"))
    assert mapped == {"Estimate/Refresh/Sum": "Estimate/Refresh/Add", "A, b": "B"}


def test_drain_asks_for_the_id_if_it_is_not_given(capsys):
    [listed] = printed(capsys, "drain", *WHERE[:2], "--job=moves")
    assert listed[:4] == ["gcloud", "dataflow", "jobs", "list"]
    assert flag(listed, "filter") == "name=moves"
    [drained] = printed(capsys, "drain", *WHERE[:2], "--job-id=2026-01-05_00-1")
    assert drained[:5] == ["gcloud", "dataflow", "jobs", "drain", "2026-01-05_00-1"]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["--parameter=lagz=1"], "--parameter lagz is not known; did you mean 'lags'"),
        (["--parameter=lags"], "--parameter needs NAME=VALUE"),
        (["--parameter=stream_refresh=soon"], "does not fit"),
        ([], "--config FILE is needed"),
        (["--config=nowhere.yaml"], "cannot read 'nowhere.yaml'"),
    ],
)
def test_what_cannot_run_is_not_printed(capsys, given, message):
    assert launch["main"](["run", *WHERE, *given]) == 2
    out, err = capsys.readouterr()
    assert not out
    assert message in err


def test_commands_run_only_when_asked_and_stop_at_a_failure(capsys, config, tmp_path, monkeypatch):
    log = tmp_path / "calls"
    fake = tmp_path / "bin/gcloud"
    fake.parent.mkdir()
    fake.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" >> "{log}"\nexit 3\n', encoding="utf-8")
    fake.chmod(fake.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{fake.parent}:/usr/bin:/bin")
    printed(capsys, "run", *WHERE, f"--config={config}")
    assert not log.exists()
    [only] = printed(capsys, "run", *WHERE, f"--config={config}", "--execute", code=3)
    assert log.read_text(encoding="utf-8").splitlines() == only[1:]

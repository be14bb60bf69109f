"""Pipeline options: one for every key of a config, none that Beam has already."""

from __future__ import annotations

import argparse
import importlib
import json
import re
import runpy
from pathlib import Path

import apache_beam
import frames
import pytest
from apache_beam.io.localfilesystem import LocalFileSystem
from apache_beam.options.pipeline_options import PipelineOptions

from aggmc_beam.beam.options import SHORT, AggmcOptions, config_of
from aggmc_beam.config.keys import keys
from aggmc_beam.config.kinds import Section
from aggmc_beam.config.model import Config
from aggmc_beam.errors import InputError

ROOT = Path(__file__).parent.parent


def option_names(cls):
    parser = argparse.ArgumentParser(allow_abbrev=False)
    # Beam's own parser has this name for arguments of templates.
    parser.add_value_provider_argument = parser.add_argument
    cls._add_argparse_args(parser)
    return {name for action in parser._actions for name in action.option_strings} - {"-h", "--help"}


def paths(schema, path=""):
    """Every path below a JSON Schema at which a value may stand."""
    for name, inner in schema.get("properties", {}).items():
        below = list(paths(inner, f"{path}{name}."))
        yield from below
        for choice in inner.get("anyOf", []):
            yield from paths(choice, f"{path}{name}.")
        if not below:
            yield f"{path}{name}"


def test_every_key_of_the_schema_has_an_option():
    given = option_names(AggmcOptions)
    leaves = set(paths(Section(Config).schema))
    assert {"input.pubsub.timestamp", "noise", "noise.model", "chain.window.every"} <= leaves
    assert {f"--{path.replace('.', '_')}" for path in leaves} <= given
    assert leaves <= {k.path for k in keys()}
    assert {"--noise_alpha", "--noise_sigma", "--noise_epsilon", "--input", "--set", "--config"} <= given


def test_two_keys_never_share_an_option():
    names = [k.option for k in keys()] + [*SHORT, "config", "set"]
    assert len(set(names)) == len(names)


def beam_option_classes():
    """All option classes that are part of Beam, wherever they are defined."""
    root = Path(apache_beam.__file__).parent
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root.parent).with_suffix("").parts
        if {"examples", "testing", "benchmarks"} & set(parts) or path.name.endswith("_test.py"):
            continue
        for name in re.findall(r"^class (\w+)\(PipelineOptions\)", path.read_text("utf-8"), re.M):
            try:
                yield getattr(importlib.import_module(".".join(parts)), name)
            except ImportError:  # a runner whose library is not installed
                continue


def test_no_option_has_the_name_of_one_of_beams():
    own, found = option_names(AggmcOptions), list(beam_option_classes())
    assert len(found) > 15
    for cls in found:
        assert not own & option_names(cls), cls.__name__
    # Beam joins the options of all classes in one parser, which refuses two of one name.
    assert "--streaming" not in own
    everything = PipelineOptions(["--streaming", "--lags=1"]).get_all_options()
    assert everything["streaming"] is True
    assert everything["lags"] == "1"


def config(*arguments):
    return config_of(PipelineOptions(list(arguments)).view_as(AggmcOptions))


def test_options_alone_make_a_config():
    found, plain = config(
        "--input_files=*.csv",
        "--input_separator=,",
        "--input_step=1h",
        "--input_columns_time=no",
        "--states=[home, work]",
        "--noise_model=binomial",
        "--noise_alpha=0.5",
        "--population=1e3",
        "--chain_window_size=6",
        "--output_moments=true",
        "--lags=1",
    )
    assert (found.input.files, found.input.separator, found.input.step) == ("*.csv", ",", "1h")
    assert found.input.columns.time == "no"
    assert found.states == ("home", "work")
    assert found.noise.alpha == 0.5
    assert (found.chain.size, found.population, found.output.moments, found.lags) == (6, 1000, True, 1)
    assert plain["noise"] == {"model": "binomial", "alpha": 0.5}


def test_set_comes_after_options_and_options_after_the_file(tmp_path):
    path = tmp_path / "run.yaml"
    path.write_text("{estimator: mom, lags: 2, name: a, input: {files: a.csv}}", encoding="utf-8")
    found, _ = config(f"--config={path}", "--lags=1", "--name=b", "--set", "name=c", "--input=b.csv")
    assert (found.estimator, found.lags, found.name, found.input.files) == ("mom", 1, "c", "b.csv")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "--config FILE is needed"),
        (["--lags=many", "--input=a"], "lags must be a whole number"),
        (["--stream_refresh=soon", "--input=a"], "stream.refresh"),
        (["--config=nowhere.yaml"], "cannot read 'nowhere.yaml'"),
        (["--config=far:///nowhere.yaml"], "cannot read 'far:///nowhere.yaml'"),
    ],
)
def test_a_wrong_option_is_told_by_its_key(arguments, message):
    with pytest.raises(InputError, match=re.escape(message)):
        config(*arguments)


class Far(LocalFileSystem):
    """A filesystem with a scheme, as those of clouds have one."""

    @classmethod
    def scheme(cls):
        return "far"

    def open(self, path, *args, **kwargs):
        return super().open(path.removeprefix("far://"), *args, **kwargs)


def test_a_config_is_read_from_any_filesystem_of_beam(tmp_path):
    path = tmp_path / "run.yaml"
    path.write_bytes(b"\xef\xbb\xbf{estimator: mom, input: {files: a.csv}}")
    assert config(f"--config=far://{path}")[0].estimator == "mom"


def test_options_work_through_the_entry_point(tmp_path):
    path = frames.save(frames.wide(frames.counts()), tmp_path / "data.csv")
    file = tmp_path / "run.yaml"
    file.write_text(json.dumps(frames.config("nothing.csv")), encoding="utf-8")
    main = runpy.run_path(str(ROOT / "pipelines/run.py"))["main"]
    out = tmp_path / "out"
    changes = [f"--input_files={path}", f"--output_directory={out}", "--uncertainty_level=0.5"]
    main([str(file), *changes, "--set", "estimator=naive", "--runner=FnApiRunner"])
    line = json.loads((out / "estimates.jsonl").read_text(encoding="utf-8"))
    assert (line["level"], line["estimator"]) == (0.5, "naive")

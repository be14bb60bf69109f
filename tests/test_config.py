from pathlib import Path

import pytest

import aggmc_beam as am
from aggmc_beam.config import load_config, read_config, set_key
from aggmc_beam.config.kinds import Section
from aggmc_beam.config.model import Config
from aggmc_beam.config.reader import read_yaml, read_yaml_file
from aggmc_beam.config.special import ChainKind, chain_to_plain
from tools import config_page as reference

ROOT = Path(__file__).parent.parent
FULL = """
version: 1
name: hourly-mobility
states: [home, work, transit, 7]
input:
  files: data/*.parquet
  layout: wide
  columns: {realization: day, time: hour, counts: devices}
  step: 1h
  origin: 2026-01-05
group_by: [region]
noise: {model: discrete-laplace, epsilon: 1e-1}
population: 1e3
chain: {window: {size: 168, every: 24}}
estimator: auto
uncertainty: {level: 0.9, replicates: 32}
stream: {refresh: 60s, allowed_lateness: 10m, state_ttl: 7d}
output: {directory: out/, moments: true, report: true}
engine: local
"""


def test_a_config_is_read_into_the_librarys_own_values():
    config = read_config(read_yaml(FULL))
    assert config.states == ("home", "work", "transit", "7")
    assert config.noise == am.DiscreteLaplace(10.0)
    assert config.population == 1000.0
    assert config.chain == am.Window(168, 24)
    assert config.input.origin == 1767571200 * 10**6
    assert config.uncertainty.replicates == 32
    assert config.output.moments
    with pytest.raises(AttributeError):
        config.name = "other"


def files(**more):
    return {"input": {"files": "a.csv", **more}}


BAD = {
    "unknown key": ({**files(), "estimater": "mom"}, "unknown key 'estimater'; did you mean 'estimator'?"),
    "unknown inner key": (files(colums={}), "unknown key 'input.colums'; did you mean 'columns'?"),
    "no input": ({}, "input is missing"),
    "no files": ({"input": {}}, "input.files, input.pubsub or input.bigquery must be given"),
    "both inputs": (files(pubsub={"topic": "t"}), "input.files, input.pubsub or input.bigquery"),
    "wrong type": (files(step=1.5), r"input.step must be a whole number .* got 1.5"),
    "bad duration": (files(step="1 hour"), "input.step: '1 hour' is not a duration"),
    "estimator": ({**files(), "estimator": "momm"}, "estimator is 'momm'; did you mean 'mom'?"),
    "noise model": ({**files(), "noise": {"model": "binomal"}}, "noise: .*did you mean 'binomial'"),
    "noise key": ({**files(), "noise": {"model": "binomial", "alfa": 1}}, "did you mean 'alpha'"),
    "noise value": ({**files(), "noise": {"model": "binomial", "alpha": 2}}, "noise: binomial alpha"),
    "half a move": (
        {**files(), "constraints": {"forbidden": [["a"]]}},
        "constraints.forbidden.0. must be two",
    ),
    "no probability": (
        {**files(), "constraints": {"fixed": [{"origin": "a", "target": "b", "probability": 2}]}},
        "constraints.fixed.0..probability must be a probability",
    ),
    "unknown constraint state": (
        {**files(), "states": ["a", "b"], "constraints": {"absorbing": ["c"]}},
        "a state 'c'; the states are",
    ),
    "constraints on mom": (
        {**files(), "states": ["a", "b"], "estimator": "mom", "constraints": {"absorbing": ["a"]}},
        "mom cannot keep constraints",
    ),
    "noise size": (
        {**files(), "states": ["a", "b"], "noise": {"model": "detection", "alpha": [0.5] * 3}},
        "noise does not fit the 2 states",
    ),
    "chain": ({**files(), "chain": {"windw": 3}}, "unknown key 'chain.windw'; did you mean 'window'"),
    "chain name": ({**files(), "chain": "stationery"}, "did you mean 'stationary'"),
    "window": ({**files(), "chain": {"window": {"size": 0}}}, "chain.window.size must be a whole number"),
    "repeated state": ({**files(), "states": ["a", "b", "a"]}, r"states\[2\] is 'a' again"),
    "a truth value": ({**files(), "states": [True, "b"]}, r"states\[0\] must be a name .*in quotes"),
    "states": ({**files(), "states": "all"}, "list of names or from-data"),
    "two populations": (
        {**files(columns={"population": "n"}), "population": 5},
        "population and input.columns.population",
    ),
    "negative population": ({**files(), "population": -5}, "population must be a number above 0"),
    "population word": ({**files(), "population": "estimte"}, "did you mean 'estimate'"),
    "absent in wide": (files(absent="zero"), "input.absent is for the long layout"),
    "origin without stamps": (files(origin="2026-01-01"), "input.origin needs input.step"),
    "same column": (files(columns={"time": "x", "realization": "x"}), "'x', which input.columns.realization"),
    "number of columns": (
        {**files(columns={"counts": ["a", "b", "c"]}), "states": ["x", "y"]},
        "names 3 columns for 2 states",
    ),
    "level": (
        {**files(), "uncertainty": {"level": 95}},
        "uncertainty.level must be a number above 0 and below 1",
    ),
    "separator": ({"input": {"files": "a.csv", "separator": "::"}}, "separator must be one character"),
    "separator of two bytes": (
        {"input": {"files": "a.csv", "separator": "§"}},
        "separator must be one character",
    ),
    "separator of names": (
        {"input": {"files": "a.csv", "separator": "x"}},
        "no letter, digit, quotation mark",
    ),
    "version": ({**files(), "version": 2}, "version 2 is not known"),
    "stream states": ({"input": {"pubsub": {"topic": "t"}}}, "states must be listed"),
    "pubsub": ({"input": {"pubsub": {}}}, "input.pubsub.subscription or input.pubsub.topic"),
    "a list": ([1], "the config must be a section of keys"),
    "matrix": ({**files(), "simulate": {"matrix": [[1, 0]]}}, "simulate.matrix must be a square matrix"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_wrong_config_is_an_error_that_names_the_key_and_what_would_be_right(case):
    plain, message = BAD[case]
    with pytest.raises(am.InputError, match=message):
        read_config(plain)


BAD_YAML = {
    "a tab": ("input:\n\tfiles: a.csv", "line 2: a tab is used"),
    "an object": ("a: !!python/object:os.system x", "line 1: the tag !!python/object:os.system is not read"),
    "an anchor": ("a: &x 1\nb: *x", "line 1: anchors"),
    "a bomb": ("a: " + "[" * 50 + "]" * 50, "more than 30 levels"),
    "a merge": ("a: {<<: {b: 1}}", "merge keys"),
    "a repeated key": ("a: 1\nb: 2\na: 3", "line 3: key 'a' is given twice"),
    "a broken list": ("a: [1, 2", "line 1"),
    "a huge text": ("a: " + "x" * 1_100_000, "larger than 1 MB"),
    "two documents": ("a: 1\n---\nb: 2", "line 2"),
    "an impossible date": ("a: 2026-13-45", "month"),
}


@pytest.mark.parametrize("case", BAD_YAML)
def test_yaml_beyond_plain_values_is_refused_with_its_line(case):
    text, message = BAD_YAML[case]
    with pytest.raises(am.InputError, match=message):
        read_yaml(text, "x.yaml")


@pytest.mark.parametrize("name", sorted(p.name for p in (ROOT / "configs").glob("*.yaml")))
def test_the_configs_of_the_repository_are_valid(name):
    plain = read_yaml_file(ROOT / "configs" / name)
    if "version" in plain:  # the others are Beam YAML
        assert read_config(plain).known_states


def test_keys_are_set_from_the_command_line(tmp_path):
    path = tmp_path / "a.yaml"
    path.write_text("\ufeffinput: {files: a.csv}\r\n", encoding="utf-8")
    config, plain = load_config(
        path, ["estimator=mom", "chain={cycle: 24}", "output.directory=x", "noise.model=exact"]
    )
    assert (config.estimator, config.chain, config.output.directory) == ("mom", am.Cycle(24), "x")
    assert plain["chain"] == {"cycle": 24}
    assert load_config(path, ["input.resume=x", "input.resume="])[0].input.resume is None
    for wrong, message in (
        ("estimator", "key=value"),
        ("input.files.x=1", "not a section"),
        ("a=[", "--set a"),
    ):
        with pytest.raises(am.InputError, match=message):
            set_key({"input": {"files": "a"}}, wrong)


def test_a_missing_binary_or_empty_config_is_an_error(tmp_path):
    for content, message in (
        (None, "cannot read"),
        (b"\xff\x00", "not UTF-8"),
        (b"", "empty or not a mapping"),
    ):
        path = tmp_path / "c.yaml"
        path.unlink(missing_ok=True)
        if content is not None:
            path.write_bytes(content)
        with pytest.raises(am.InputError, match=message):
            load_config(path)


@pytest.mark.parametrize(
    "plain", ["stationary", "per-step", {"cycle": 3}, {"harmonics": {"period": 24, "order": 2}}]
)
def test_a_chain_is_written_as_it_is_read(plain):
    assert chain_to_plain(ChainKind().read(plain, "chain")) == plain


def test_the_reference_page_and_the_schema_are_up_to_date():
    assert (ROOT / reference.PAGE).read_text(encoding="utf-8") == reference.page(), "run `make docs`"
    assert (ROOT / reference.SCHEMA).read_text(encoding="utf-8") == reference.schema(), "run `make docs`"
    assert Section(Config).schema["additionalProperties"] is False

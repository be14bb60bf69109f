"""The Beam engine on files gives what the local engine gives."""

from __future__ import annotations

import bz2
import gzip
import json

import frames
import numpy as np
import polars as pl
import pyarrow as pa
import pytest

from aggmc_beam.beam import run as beam_run
from aggmc_beam.cli import main
from aggmc_beam.config import read_config
from aggmc_beam.errors import InputError
from aggmc_beam.local import output
from aggmc_beam.local import run as run_locally

TWO_WORKERS = ["--runner=FnApiRunner", "--direct_num_workers=2"]


def lines(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def assert_close(found, expected, where=""):
    """Equal JSON, numbers to 1e-10."""
    if isinstance(expected, dict):
        assert found.keys() == expected.keys(), where
        for name in expected:
            assert_close(found[name], expected[name], f"{where}.{name}")
    elif isinstance(expected, list):
        assert len(found) == len(expected), where
        for i, (a, b) in enumerate(zip(found, expected, strict=True)):
            assert_close(a, b, f"{where}[{i}]")
    elif isinstance(expected, float):
        assert found == pytest.approx(expected, rel=1e-10, abs=1e-10), where
    else:
        assert found == expected, where


def compare(tmp_path, plain, arguments=()):
    """Run both engines; their files must agree. The local result is returned."""
    sides = {}
    for side in ("beam", "local"):
        given = {**plain, "output": {"directory": str(tmp_path / side), **plain.get("output", {})}}
        config = read_config(given)
        if side == "beam":
            beam_run.run(config, given, arguments)
        else:
            result = run_locally(config)
            output.write(result, config, given)
        sides[side] = {n: lines(tmp_path / side / n) for n in (output.ESTIMATES, output.REJECTED)}
        sides[side]["ledger"] = json.loads((tmp_path / side / output.RUN).read_text())["ledger"]
        del sides[side]["ledger"]["sorted"]
    assert_close(sides["beam"], sides["local"])
    return sides["beam"]


def gappy(**options):
    y = frames.counts(**options)
    y[1, 5] = y[2, 30:33] = y[4, 0] = np.nan
    return y


CHAINS = {
    "stationary": "stationary",
    "per-step": "per-step",
    "window": {"window": {"size": 20, "every": 10}},
    "cycle": {"cycle": 5},
}


@pytest.mark.parametrize("chain", CHAINS)
def test_every_chain_gives_the_same_from_shuffled_and_repeated_records(chain, tmp_path):
    frame = frames.wide(gappy(K=8, T=40))
    again = pl.concat([frame, frame.sample(fraction=0.2, seed=2)]).sample(fraction=1, shuffle=True, seed=1)
    for i, half in enumerate((again[:150], again[150:])):
        frames.save(half, tmp_path / f"data{i}.csv")
    plain = frames.config(tmp_path / "data*.csv", chain=CHAINS[chain], uncertainty={"replicates": 10})
    found = compare(tmp_path, plain)
    assert found["ledger"]["duplicates"] == len(again) - len(frame)


@pytest.mark.parametrize(
    ("suffix", "layout"), [("jsonl", "lists"), ("parquet", "lists"), ("parquet", "long")]
)
def test_every_format_and_layout_gives_the_same(suffix, layout, tmp_path):
    frame = frames.wide(gappy())
    shaped = {"lists": frames.lists, "long": frames.long}[layout](frame)
    # Rows of one long record stand in different files.
    shuffled = shaped.sample(fraction=1, shuffle=True, seed=4)
    half = len(shuffled) // 2
    for i, part in enumerate((shuffled[:half], shuffled[half:])):
        frames.save(part, tmp_path / f"data{i}.{suffix}")
    more = {"layout": "long"} if layout == "long" else {}
    compare(tmp_path, frames.config(tmp_path / f"data*.{suffix}", input=more))


@pytest.mark.parametrize("packed", ["gz", "bz2", "zst"])
def test_compressed_text_gives_the_same(packed, tmp_path):
    plain = frames.wide(gappy()).write_csv().encode()
    if packed == "zst":
        data = pa.compress(plain, codec="zstd", asbytes=True)
    else:
        data = {"gz": gzip.compress, "bz2": bz2.compress}[packed](plain)
    path = tmp_path / f"data.csv.{packed}"
    path.write_bytes(data)
    found = compare(tmp_path, frames.config(path))
    assert found["ledger"]["records"] == 235


def test_groups_with_bad_and_contradicting_records_give_the_same_rejections(tmp_path):
    rows = []
    for name, seed in (("north", 1), ("süd", 2)):
        frame = frames.lists(frames.wide(frames.counts(K=3, T=30, seed=seed)))
        rows += [{"region": name, **row} for row in frame.to_dicts()]
    rng = np.random.default_rng(1)
    bad = [
        "no JSON",
        '{"region": "north", "realization": 1, "time": 3, "counts": [1, 2]}',
        '{"region": "north", "realization": 1, "time": 3.5, "counts": [1, 2, 3]}',
        '{"region": "", "realization": 1, "time": 3, "counts": [1, 2, 3]}',
        '{"region": "west", "realization": 1, "time": 3, "counts": [1, 2, NaN]}',
        '{"region": "north", "realization": 1, "time": 3, "counts": [900, 2, 3]}',
    ]
    text = [json.dumps(row, ensure_ascii=False) for row in rows]
    text = [text[i] for i in rng.permutation(len(text))] + bad
    (tmp_path / "data.jsonl").write_text("\n".join(text), encoding="utf-8")
    plain = frames.config(tmp_path / "data.jsonl", group_by=["region"])
    found = compare(tmp_path, plain)
    assert found["ledger"]["rejected"] == 5
    assert found["ledger"]["conflicting"] == 1
    with pytest.raises(InputError, match="5 of 186 records were rejected, more than max_rejected: 3"):
        beam_run.run(read_config({**plain, "max_rejected": 3}), plain)


@pytest.mark.parametrize("noise", [{"model": "binomial", "alpha": 0.5}, {"model": "exact"}])
def test_populations_that_differ_give_the_same(noise, tmp_path):
    import aggmc_beam as am

    N = np.array([50, 80, 200, 200])
    model = am.Exact() if noise["model"] == "exact" else am.Binomial(0.5)
    y = am.simulate(states=3, steps=30, realizations=4, population=N, noise=model, seed=5).counts
    more = {"population": N} if noise["model"] == "binomial" else {}
    frame = frames.wide(y, **more)
    path = frames.save(frame.sample(fraction=1, shuffle=True, seed=1), tmp_path / "data.csv")
    columns = {"columns": {"population": "population"}} if more else {}
    plain = frames.config(path, noise=noise, input=columns, output={"moments": True})
    del plain["population"]
    compare(tmp_path, plain)


@pytest.mark.parametrize("mode", ["multi_processing", "multi_threading"])
def test_two_workers_give_what_one_gives(mode, tmp_path):
    frame = frames.wide(frames.counts(K=8, T=40))
    shuffled = frame.filter(pl.col("realization") >= 4).sample(fraction=1, shuffle=True, seed=1)
    for i in range(4):
        part = pl.concat([frame.filter(pl.col("realization") == i), shuffled[i::4]])
        frames.save(part, tmp_path / f"data{i}.parquet")
    plain = frames.config(tmp_path / "data*.parquet", estimator="auto")
    compare(tmp_path, plain, [*TWO_WORKERS, f"--direct_running_mode={mode}"])


@pytest.mark.parametrize("chain", ["per-step", "window"])
def test_pieces_that_follow_each_other_are_joined_and_those_that_overlap_meet(chain, tmp_path, monkeypatch):
    from aggmc_beam.beam import exact, pieces

    monkeypatch.setattr(pieces, "PIECE", 5 * 100)
    monkeypatch.setattr(pieces, "HELD_VALUES", 200)
    monkeypatch.setattr(exact, "VALUES", 200)
    frame = frames.wide(gappy(K=30, T=40))
    again = frame.filter((pl.col("realization") == 3) & pl.col("time").is_between(10, 12))
    wrong = again.with_columns(pl.col("work") + 1)
    empty = frame.head(1).with_columns(realization=pl.lit(99, pl.Int64), home=pl.lit(float("nan")))
    parts = [
        frame.filter(pl.col("time") >= 20),
        pl.concat([frame.filter(pl.col("time") < 20), wrong, empty]),
        again,
    ]
    for i, part in enumerate(parts):
        part.write_parquet(tmp_path / f"data{i}.parquet", row_group_size=50)
    found = compare(tmp_path, frames.config(tmp_path / "data*.parquet", chain=CHAINS[chain]))
    assert found["ledger"]["duplicates"] == 6
    assert found["ledger"]["conflicting"] == 3
    assert found["ledger"]["rejected"] == 1


def test_the_command_line_runs_a_config_on_a_named_runner(tmp_path, capsys):
    frames.save(frames.wide(frames.counts()), tmp_path / "data.csv")
    config = tmp_path / "run.yaml"
    plain = frames.config(tmp_path / "data.csv", output={"directory": str(tmp_path / "out"), "moments": True})
    config.write_text(json.dumps(plain), encoding="utf-8")
    assert main(["run", str(config), "--engine", "beam", "--", "--runner=FnApiRunner"]) == 0
    assert "6 realizations" in capsys.readouterr().out
    assert main(["moments", "show", str(tmp_path / "out")]) == 0
    assert "240" in capsys.readouterr().out


def test_an_error_in_the_data_is_told_in_one_line(tmp_path, capsys):
    (tmp_path / "data.csv").write_text("realization,time,home,work,ünterwegs\n1,x,1,2,3\n", encoding="utf-8")
    config = tmp_path / "run.yaml"
    config.write_text(json.dumps(frames.config(tmp_path / "data.csv")), encoding="utf-8")
    assert main(["run", str(config), "--engine", "beam"]) == 1
    error = capsys.readouterr().err
    assert "all 1 rows were rejected; the first: time is 'x', not a whole number" in error
    assert "while running" not in error


@pytest.mark.parametrize("layout", ["long", "wide"])
@pytest.mark.parametrize("groups", [[], ["region"]], ids=["one group", "a group of its own"])
def test_a_realization_without_a_good_row_is_rejected_and_the_run_goes_on(layout, groups, tmp_path):
    good = frames.wide(frames.counts(K=3)).with_columns(region=pl.lit("north"))
    bad = good.head(1).with_columns(
        realization=pl.lit(99, good.schema["realization"]),
        region=pl.lit("south"),
        **{state: pl.lit(float("nan")) for state in frames.STATES},
    )
    frame = pl.concat([good, bad])
    frame = frames.long(frame) if layout == "long" else frame
    path = frames.save(frame, tmp_path / "data.parquet")
    more = {"layout": "long"} if layout == "long" else {"columns": {"counts": frames.STATES}}
    plain = frames.config(path, input=more, max_rejected=0.5)
    found = compare(tmp_path, {**plain, "group_by": groups} if groups else plain)
    assert len(found[output.ESTIMATES]) == 1
    assert len(found[output.REJECTED]) == (3 if layout == "long" else 1)


def test_a_run_that_rejects_much_stops_with_the_reasons_on_beam_as_well(tmp_path):
    rows = "".join(f"0,{t},{10 + t % 3},20,1\n" for t in range(40)) + "0,x,1,2,3\n" * 9
    path = tmp_path / "data.csv"
    path.write_text(f"realization,time,{','.join(frames.STATES)}\n{rows}", encoding="utf-8")
    plain = frames.config(path, output={"directory": str(tmp_path / "out")})
    plain.pop("max_rejected")
    message = (
        "9 of 49 records were rejected, more than max_rejected: 0.05; the commonest reasons: 9 x time is 'x'"
    )
    for engine in (lambda: run_locally(read_config(plain)), lambda: beam_run.run(read_config(plain), plain)):
        with pytest.raises(InputError, match=message):
            engine()
    assert not (tmp_path / "out" / "estimates.jsonl").exists()

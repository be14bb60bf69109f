"""The local engine against `am.estimate` on the same array."""

import frames
import numpy as np
import polars as pl
import pytest

import aggmc_beam as am
from aggmc_beam.config import read_config
from aggmc_beam.local import engine, run, sources

HALF = am.Binomial(0.5)


def check_same(found, expected, counts=True):
    np.testing.assert_allclose(found.transition_matrix, expected.transition_matrix, rtol=0, atol=1e-12)
    np.testing.assert_allclose(found.standard_error, expected.standard_error, rtol=0, atol=1e-12)
    assert found.population == pytest.approx(expected.population, rel=1e-12)
    if counts:
        assert dict(found.counts) == dict(expected.counts)


def gappy(**options):
    y = frames.counts(**options)
    y[1, 5] = y[2, 30:33] = y[4, 0] = np.nan
    return y


ORDERS = {
    "as is": lambda f: f,
    "by time": lambda f: f.sort("time", maintain_order=True),
    "backwards": lambda f: f.reverse(),
    "shuffled": lambda f: f.sample(fraction=1, shuffle=True, seed=1),
}


def hold(monkeypatch, values):
    """Let so many values be held at once, and a block have a tenth of them."""
    monkeypatch.setattr(engine, "HELD_VALUES", values)
    monkeypatch.setattr(engine, "BLOCK_VALUES", values // 10)
    monkeypatch.setattr(sources, "BATCH_VALUES", max(1, values // 20))


@pytest.mark.parametrize("held", [1 << 20, 200])
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
@pytest.mark.parametrize("layout", ["wide", "lists", "long"])
def test_every_format_layout_and_order_gives_what_the_array_gives(
    layout, suffix, order, held, tmp_path, monkeypatch
):
    hold(monkeypatch, held)
    y = gappy()
    frame = frames.wide(y)
    shaped = {"wide": frame, "lists": frames.lists(frame), "long": frames.long(frame)}[layout]
    path = frames.save(ORDERS[order](shaped), tmp_path / f"data.{suffix}")
    result = run(read_config(frames.config(path, input={"layout": "long" if layout == "long" else "wide"})))
    expected = am.estimate(y, states=frames.STATES, noise=HALF, population=200, estimator="mom")
    check_same(result.estimates[0], expected)
    assert result.estimates[0].states == tuple(frames.STATES)


def test_constraints_of_a_config_are_kept(tmp_path):
    y = gappy()
    path = frames.save(frames.wide(y), tmp_path / "data.csv")
    a, b, *_ = frames.STATES
    known = {"forbidden": [[a, b]], "fixed": [{"origin": b, "target": a, "probability": 0.25}]}
    result = run(read_config({**frames.config(path), "estimator": "auto", "constraints": known}))
    P = result.estimates[0].transition_matrix
    assert P[0, 1] == 0
    assert P[1, 0] == pytest.approx(0.25)
    rules = am.Constraints(forbidden=[(a, b)], fixed={(b, a): 0.25})
    same = am.estimate(y, states=frames.STATES, noise=HALF, population=200, constraints=rules)
    np.testing.assert_allclose(P, same.transition_matrix, atol=1e-12)


CHAINS = [
    ("stationary", "stationary"),
    ("per-step", "per-step"),
    ({"cycle": 3}, am.Cycle(3)),
    ({"window": {"size": 6, "every": 4}}, am.Window(6, 4)),
]


@pytest.mark.parametrize(("plain", "chain"), CHAINS, ids=lambda c: str(c)[:20])
def test_every_chain_gives_what_the_array_gives(plain, chain, tmp_path):
    y = frames.counts(K=20, T=12)
    y[1, 5] = y[2, 3:5] = np.nan
    path = frames.save(frames.wide(y), tmp_path / "data.parquet")
    found = run(read_config(frames.config(path, chain=plain))).estimates
    expected = am.estimate(y, noise=HALF, population=200, estimator="mom", chain=chain)
    expected = [expected] if isinstance(expected, am.Estimate) else expected
    assert [e.cell for e in found] == [e.cell for e in expected]
    for a, b in zip(found, expected, strict=True):
        check_same(a, b)


def test_populations_from_a_column_weigh_as_those_of_the_array_do(tmp_path):
    N = np.array([50, 100, 300, 80, 120, 90])
    y = frames.counts(N=N)
    path = frames.save(frames.wide(y, people=N), tmp_path / "data.csv")
    plain = frames.config(path, population=None, input={"columns": {"population": "people"}})
    expected = am.estimate(y, noise=HALF, population=N, estimator="mom")
    check_same(run(read_config(plain)).estimates[0], expected)


def test_equal_populations_from_a_column_are_one_population(tmp_path):
    N = np.full(6, 200)
    y = frames.counts()
    path = frames.save(frames.wide(y, people=N), tmp_path / "data.csv")
    plain = frames.config(path, population=None, input={"columns": {"population": "people"}})
    check_same(
        run(read_config(plain)).estimates[0], am.estimate(y, noise=HALF, population=N, estimator="mom")
    )


@pytest.mark.parametrize("N", [200, np.array([50, 100, 300, 80, 120, 90])], ids=["equal", "unequal"])
def test_exact_counts_tell_their_populations(N, tmp_path):
    y = frames.counts(N=N, noise=am.Exact())
    path = frames.save(frames.wide(y), tmp_path / "data.parquet")
    found = run(read_config(frames.config(path, population="estimate", noise="exact"))).estimates[0]
    check_same(found, am.estimate(y, estimator="mom"))


def test_noise_that_changes_with_time_is_undone_record_by_record(tmp_path):
    noise = am.PerStep([am.Binomial(0.5), am.Binomial(0.9), am.Binomial(0.7)])
    y = frames.counts(noise=noise)
    path = frames.save(frames.wide(y), tmp_path / "data.parquet")
    found = run(read_config(frames.config(path, noise=noise.to_dict()))).estimates[0]
    check_same(found, am.estimate(y, noise=noise, population=200, estimator="mom"))


def test_groups_are_estimated_apart(tmp_path):
    parts = {name: frames.counts(seed=i) for i, name in enumerate(["north", "süd"])}
    rows = [frames.wide(y).with_columns(region=pl.lit(name)) for name, y in parts.items()]
    mixed = pl.concat(rows).sort("time", maintain_order=True)
    path = frames.save(mixed, tmp_path / "data.csv")
    result = run(read_config(frames.config(path, group_by=["region"])))
    assert [e.group for e in result.estimates] == [{"region": "north"}, {"region": "süd"}]
    for found, y in zip(result.estimates, parts.values(), strict=True):
        check_same(found, am.estimate(y, noise=HALF, population=200, estimator="mom"))
    assert result.ledger["sorted"] is False


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
def test_time_stamps_become_steps(suffix, tmp_path):
    y = gappy()
    stamps = pl.datetime(2026, 3, 1) + pl.duration(hours=2 * pl.col("time"))
    frame = frames.wide(y).with_columns(time=stamps)
    if suffix != "parquet":
        frame = frame.with_columns(pl.col("time").dt.strftime("%Y-%m-%dT%H:%MZ"))
    path = frames.save(frame, tmp_path / f"data.{suffix}")
    plain = frames.config(path, input={"step": "2h"}, chain={"window": {"size": 40}})
    found = run(read_config(plain)).estimates
    assert found[0].window["start"].endswith("Z")
    plain["chain"] = "stationary"
    expected = am.estimate(y, noise=HALF, population=200, estimator="mom")
    check_same(run(read_config(plain)).estimates[0], expected)


def test_states_are_found_in_the_data(tmp_path):
    y = frames.counts()
    frame = frames.wide(y)
    for shaped, layout, names in (
        (frame, "wide", frames.STATES),
        (frames.lists(frame), "wide", ["0", "1", "2"]),
        (frames.long(frame).reverse(), "long", sorted(frames.STATES)),
    ):
        path = frames.save(shaped, tmp_path / "data.parquet")
        plain = frames.config(path, states="from-data", input={"layout": layout})
        assert run(read_config(plain)).estimates[0].states == tuple(names)


def test_many_files_are_one_data_set_whatever_their_order_of_columns(tmp_path):
    y = frames.counts()
    frame = frames.wide(y)
    for k in range(6):
        part = frame.filter(pl.col("realization") == k)
        part = part.select(reversed(part.columns)) if k % 2 else part
        frames.save(part, tmp_path / f"part{k}.csv")
    result = run(read_config(frames.config(tmp_path / "*.csv")))
    check_same(result.estimates[0], am.estimate(y, noise=HALF, population=200, estimator="mom"))
    assert result.ledger["files"] == 6


def test_names_that_are_no_numbers_are_dealt_into_the_same_groups_in_every_format(tmp_path):
    frame = frames.wide(frames.counts(K=30)).with_columns(
        pl.format("zone {}", "realization").alias("realization")
    )
    found = [
        run(read_config(frames.config(frames.save(frame, tmp_path / f"data.{s}")))).estimates[0].to_json()
        for s in ("csv", "jsonl", "parquet")
    ]
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize("order", ORDERS)
def test_whole_counts_give_the_same_bits_for_any_number_of_threads_and_rows_at_once(
    order, tmp_path, monkeypatch
):
    y = gappy(K=40)
    config = read_config(frames.config(frames.save(ORDERS[order](frames.wide(y)), tmp_path / "data.parquet")))
    found = set()
    for threads, values in ((1, 1 << 20), (4, 1 << 20), (4, 1000), (2, 300)):
        monkeypatch.setattr(pl, "thread_pool_size", lambda threads=threads: threads)
        hold(monkeypatch, values)
        found.add(run(config).state.sums.to_bytes())
    assert len(found) == 1


@pytest.mark.parametrize("layout", ["wide", "long"])
def test_rows_that_are_not_held_at_once_are_accounted_for_as_those_that_are(layout, tmp_path, monkeypatch):
    frame = frames.wide(gappy(K=40))
    again = frame.sample(50, seed=1).with_columns(pl.col(frames.STATES[0]) + 1)
    bad = frame.sample(20, seed=2).with_columns(pl.lit(float("nan")).alias(frames.STATES[1]))
    mixed = pl.concat([frame, again, bad], how="vertical_relaxed").sample(fraction=1, shuffle=True, seed=3)
    mixed = frames.long(mixed) if layout == "long" else mixed
    for i, part in enumerate((mixed[:300], mixed[300:])):
        frames.save(part, tmp_path / f"{i}.parquet")
    config = read_config(frames.config(tmp_path / "*.parquet", input={"layout": layout}))
    found = []
    for values in (1 << 20, 600):
        hold(monkeypatch, values)
        found.append(run(config))
    a, b = found
    assert not a.ledger.pop("sorted")
    assert b.ledger.pop("sorted")
    assert a.ledger == b.ledger
    assert a.ledger["rows"]["rejected"] >= 20
    assert a.ledger["conflicting"] > 0
    assert [r.to_dict() for r in a.rejections()] == [r.to_dict() for r in b.rejections()]
    check_same(a.estimates[0], b.estimates[0])


@pytest.mark.parametrize("states", [frames.STATES, frames.STATES[::-1]], ids=["in order", "backwards"])
@pytest.mark.parametrize("written", ["{}", " {} "])
@pytest.mark.parametrize("dtype", [pl.Int64, pl.Float64])
def test_rows_of_a_long_table_are_put_together_in_any_order(states, written, dtype, tmp_path):
    y = gappy(K=30)
    rows = frames.long(frames.wide(y), states).sort("realization", "time", maintain_order=True)
    rows = rows.with_columns(pl.col("count").cast(dtype), pl.format(written, "state").alias("state"))
    found = []
    for name, frame in (("in order", rows), ("apart", rows.reverse())):
        path = frames.save(frame, tmp_path / f"{name}.parquet")
        found.append(run(read_config(frames.config(path, input={"layout": "long"}))))
    a, b = found
    assert a.ledger["rows"] == b.ledger["rows"]
    check_same(a.estimates[0], b.estimates[0])
    check_same(a.estimates[0], am.estimate(y, noise=HALF, population=200, estimator="mom"))


@pytest.mark.parametrize("change", ["state twice", "state unknown", "count missing", "step cut", "again"])
def test_a_long_table_with_an_odd_row_is_accounted_for_in_any_order(change, tmp_path):
    rows = frames.long(frames.wide(frames.counts(K=30))).sort("realization", "time", maintain_order=True)
    changed = {
        "state twice": rows.with_columns(state=pl.Series(["home", "home", *rows["state"][2:]])),
        "state unknown": rows.with_columns(state=pl.Series(["moon", *rows["state"][1:]])),
        "count missing": rows.with_columns(count=pl.Series([None, *rows["count"][1:]])),
        "step cut": rows.with_columns(time=pl.Series([0, 0, 1, *rows["time"][3:]])),
        "again": pl.concat([rows, rows[:3]]),
    }[change]
    results = []
    for name, frame in (("in order", changed), ("apart", changed.sort("state", maintain_order=True))):
        path = frames.save(frame, tmp_path / f"{name}.parquet")
        results.append(run(read_config(frames.config(path, input={"layout": "long"}, max_rejected=0.5))))
    first, second = (result.ledger for result in results)
    assert first["rows"] == second["rows"]
    assert first["filled_with_zero"] == second["filled_with_zero"]
    assert first["rows"]["read"] == changed.height
    check_same(results[0].estimates[0], results[1].estimates[0])


@pytest.mark.parametrize("layout", ["wide", "long"])
@pytest.mark.parametrize("count", [1e31, -1e31, float("inf"), float("nan")])
def test_counts_beyond_the_limit_are_refused_in_every_layout(layout, count, tmp_path):
    frame = frames.wide(frames.counts()).with_columns(home=pl.Series([count] * 2 + [7.0] * 238))
    frame = frame if layout == "wide" else frames.long(frame).sort("realization", "time", maintain_order=True)
    path = frames.save(frame, tmp_path / "data.parquet")
    result = run(read_config(frames.config(path, input={"layout": layout}, max_rejected=0.5)))
    assert result.ledger["rejected"] == (2 if layout == "wide" else 6)


@pytest.mark.parametrize(
    ("field", "rejected"),
    [("12", 0), ("12.0", 0), (" 12", 0), ("+12", 0), ("1.2e1", 0), ("twelve", 1), ("", 1)],
)
@pytest.mark.parametrize("column", ["work", "time"])
def test_a_number_that_is_written_otherwise_changes_nothing_else_of_a_csv_file(
    field, rejected, column, tmp_path
):
    """Plain whole numbers are read at once; one other field, and every field is read as text."""
    frame = frames.wide(frames.counts(K=25)).cast(pl.Int64).with_columns(pl.col(column).cast(pl.String))
    changed = frame.with_columns(pl.Series(column, [field, *frame[column][1:]]))
    path = frames.save(changed, tmp_path / "data.csv")
    found = run(read_config(frames.config(path, max_rejected=0.5))).ledger
    again = 1 if column == "time" and not rejected else 0
    assert found["rejected"] == rejected
    assert found["records"] == frame.height - rejected - again

"""Cases of their own: options, ways to write files, runs that go on from others, what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

import aggmc_beam as am

from . import data, doors, tables
from .case import CLOSE, DOWNHILL, SEARCHED, Case, Cases

SPECIAL = Cases()
add = SPECIAL.add


def panel(seed=1, K=6, T=40, S=3, noise="binomial", size=300, vary=False, period=0) -> data.Panel:
    return data.panel(np.random.default_rng(seed), K, T, S, noise, size, vary, period)


def array(**shape: Any) -> np.ndarray:
    return panel(**shape).counts


def rows(**shape: Any) -> list[tables.Row]:
    made = panel(**shape)
    states = data.STATES[: made.counts.shape[2]]
    return tables.rows_of([made], (), [()], states, False)


def table(found: list[tables.Row], S: int = 3, **more: Any) -> tables.Table:
    return tables.Table(found, data.STATES[:S], **{"group_by": (), **more})


def config(files: Any, S: int = 3, **more: Any) -> dict[str, Any]:
    input = {"files": files, **more.pop("input", {})}
    plain = {
        "states": list(data.STATES[:S]),
        "input": input,
        "noise": data.describe_noise("binomial", S),
        "population": 300,
        "estimator": "mom",
        "uncertainty": {"replicates": 6, **more.pop("uncertainty", {})},
    }
    return {**plain, **more}


# Options of am.estimate on arrays.

HALF = {"noise": am.Binomial(0.8), "population": 300, "replicates": 6}


def arrays(id: str, y: Any, tolerance: float = SEARCHED, **options: Any) -> None:
    """A case of `am.estimate` on an array, which is made when it is needed."""

    def record(_: Path) -> doors.Record:
        return doors.estimate(y(), **{**HALF, **options})

    SPECIAL.all.append(Case(f"array: {id}", record, tolerance))


arrays("one realization in blocks of time", lambda: array(K=1, T=60), CLOSE, estimator="mom")
arrays("two realizations", lambda: array(K=2, T=60), CLOSE, estimator="mom")
arrays("many realizations of two steps", lambda: array(K=40, T=2), CLOSE, estimator="cls")
arrays("6 states", lambda: array(K=6, T=60, S=6, size=5000), population=5000, estimator="fast")
arrays("a state that is never seen", lambda: array() * [1, 1, 0], CLOSE, estimator="mom")
arrays("lag 1 only", lambda: array(T=60), lags=1, estimator="gmm")
arrays("level 0.5", lambda: array(), CLOSE, level=0.5, estimator="mom")
arrays("alpha estimated", lambda: array(T=60), noise=am.Binomial("estimate"), estimator="simplex")
arrays(
    "sigma estimated",
    lambda: array(T=60, noise="gaussian"),
    noise=am.Gaussian("estimate"),
    estimator="gmm",
)
arrays("Poisson", lambda: array(T=60), noise=am.Poisson(0.8), estimator="gmm")
arrays("Laplace", lambda: array(T=60, noise="gaussian"), noise=am.Laplace(1.4), estimator="gmm")
arrays(
    "discrete Laplace", lambda: array(T=60, noise="gaussian"), noise=am.DiscreteLaplace(1.4), estimator="fast"
)
arrays(
    "discrete Gaussian",
    lambda: array(T=60, noise="gaussian"),
    noise=am.DiscreteGaussian(2.0),
    estimator="gmm",
)
arrays(
    "forbidden and fixed entries",
    lambda: array(),
    estimator="simplex",
    constraints=am.Constraints(forbidden=[(0, 2)], fixed={(1, 1): 0.7}),
)
arrays("an absorbing state", lambda: array(), estimator="gmm", constraints=am.Constraints(absorbing=[2]))
arrays("reversible", lambda: array(), estimator="fast", constraints=am.Constraints(reversible=True))
arrays(
    "a prior",
    lambda: array(),
    estimator="gmm",
    constraints=am.Constraints(prior=np.full((3, 3), 1 / 3), prior_weight=50),
)
arrays("an outside state", lambda: array()[..., :2], outside="away", estimator="gmm", states=["a", "b"])
arrays("an open population", lambda: array(vary=True), open_population=True, estimator="gmm")
arrays(
    "a trend over steps",
    lambda: array(K=12, T=12),
    DOWNHILL,
    chain=am.Parametric(np.linspace(0, 1, 12)[:, None], weighting="plain"),
    estimator="mom",
)
arrays("auto with drift", lambda: array(K=10, T=48, period=48), estimator="auto")
arrays("auto with wrong noise", lambda: array(K=8, T=60), noise=am.Binomial(0.95), estimator="auto")
arrays("auto of exact counts", lambda: array(noise="exact"), noise=am.Exact(), estimator="auto")


@add("tests of memory, drift and equality")
def _(_: Path) -> doors.Record:
    known = {"noise": am.Binomial(0.8), "population": 300, "replicates": 6}
    y, other = array(K=8, T=48), array(seed=2, K=8, T=48)
    found = {
        "zero order": am.zero_order(y, **known),
        "stationarity": am.stationarity(y, **known),
        "equality": am.equality(y, other, **known),
    }
    values = {k: {"statistic": r.statistic, "p": r.p_value, "degrees": r.degrees} for k, r in found.items()}
    return {"points": {"tests": sorted(found)}, "errors": values, "auto": {}}


# Ways to write files.


@add("CSV with quotes, CRLF, a mark of its coding, blank lines and other columns")
def _(tmp: Path) -> doors.Record:
    lines = [tables.text_of(table([r]), r, "csv").split(",") for r in rows()]
    text = ["\ufeffnote,time, realization ,home,über land,work"]
    for i, (key, time, *counts) in enumerate(lines):
        text.append(f'"a, b {i}",{time},"day {key}",{counts[0]}, {counts[2]} ,"{counts[1]}"')
        text += [""] * (i % 7 == 0)
    (tmp / "a.csv").write_text("\r\n".join(text), encoding="utf-8", newline="")
    return doors.run(config(str(tmp / "a.csv")), tmp)


@add("CSV with semicolons, columns of other names, and states from the data")
def _(tmp: Path) -> doors.Record:
    made = tables.lay_out(rows(), data.STATES[:3], "long")
    text = ["dag;uur;plaats;aantal"]
    text += [f"{r['realization']};{r['time']};{r['state']};{r['count']}" for r in made]
    (tmp / "a.txt").write_text("\n".join(text) + "\n", encoding="utf-8")
    columns = {"realization": "dag", "time": "uur", "state": "plaats", "counts": "aantal"}
    input = {"layout": "long", "separator": ";", "format": "csv", "columns": columns}
    return doors.run(config(str(tmp / "a.txt"), input=input, states="from-data"), tmp)


@add("JSON lines with other keys, nested values, blank lines and missing keys")
def _(tmp: Path) -> doors.Record:
    lines = []
    for i, row in enumerate(tables.lay_out(rows(), data.STATES[:3], "list")):
        if i % 40 == 7:
            del row["counts"]
        if i % 40 == 9:
            row["counts"] = row["counts"][:2]
        more = {"meta": {"a": [i, {"b": None}]}} if i % 2 else {"other": "x"}
        lines.append(tables.json.dumps({**more, **row}))
        lines += [""] * (i % 11 == 0)
    (tmp / "a.jsonl").write_text("\n".join(lines), encoding="utf-8")
    return doors.run(config(str(tmp / "a.jsonl")), tmp)


@add("Parquet with small integers, floats, categories and several row groups")
def _(tmp: Path) -> doors.Record:
    frame = tables.frame_of(table(rows()))
    frame = frame.with_columns(
        pl.col("realization").cast(pl.String).cast(pl.Categorical),
        pl.col("time").cast(pl.Int16),
        pl.col("home").cast(pl.UInt16),
        pl.col("work").cast(pl.Float32),
    )
    frame.write_parquet(tmp / "a.parquet", row_group_size=50)
    return doors.run(config(str(tmp / "a.parquet")), tmp)


@add("Parquet with arrays of fixed length and empty ones")
def _(tmp: Path) -> doors.Record:
    made = tables.lay_out(rows(), data.STATES[:3], "list")
    made[4]["counts"] = made[30]["counts"] = None
    frame = tables.frame_of(table(made, layout="list"))
    frame = frame.with_columns(pl.col("counts").cast(pl.List(pl.Int64)).list.to_array(3))
    frame.write_parquet(tmp / "a.parquet")
    return doors.run(config(str(tmp / "a.parquet")), tmp)


def long_with_holes(tmp: Path, absent: str, format: str) -> doors.Record:
    """A long table without the rows that are zero, with a state that is not declared and repeated rows."""
    rng = np.random.default_rng(5)
    made = tables.lay_out(rows(size=40), data.STATES[:3], "long")
    made = [r for r in made if r["count"] and rng.random() > 0.02]
    made[11] = {**made[11], "state": "hme"}
    made += [dict(made[i]) for i in (3, 40, 41)]
    tables.save(table(made, layout="long"), tmp / "data", "part", format)
    input = {"layout": "long", "absent": absent}
    plain = config(str(tmp / "data" / f"*.{format}"), input=input, population="estimate", estimator="naive")
    return doors.run(plain, tmp)


for _absent in ("zero", "missing"):
    for _format in ("csv", "parquet"):
        SPECIAL.all.append(
            Case(
                f"long {_format} where absent rows are {_absent}",
                lambda tmp, a=_absent, f=_format: long_with_holes(tmp, a, f),
            )
        )


@add("long rows of a record far apart, in several files")
def _(tmp: Path) -> doors.Record:
    made = tables.shuffle(tables.lay_out(rows(), data.STATES[:3], "long"), np.random.default_rng(3))
    tables.save(table(made, layout="long", parts=3), tmp / "data", "part", "jsonl")
    return doors.run(config(str(tmp / "data" / "*"), input={"layout": "long"}), tmp)


@add("several globs that name some files twice, of several formats")
def _(tmp: Path) -> doors.Record:
    found = rows()
    for number, format in enumerate(("csv", "jsonl", "parquet")):
        part = table([r for r in found if r["realization"] % 3 == number])
        tables.save(part, tmp / "data", f"p{number}-", format)
    files = [str(tmp / "data" / "p0*"), str(tmp / "data" / "*")]
    return doors.run(config(files), tmp)


def times(id: str, name: Any, **input: Any) -> None:
    """A case of times written in some way."""

    def record(tmp: Path) -> doors.Record:
        found = [{**r, "time": name(r["time"])} for r in rows()]
        tables.save(table(found), tmp / "data", "part", "csv")
        chain = {"window": {"size": 20, "every": 20}}
        return doors.run(config(str(tmp / "data" / "*"), input=input, chain=chain), tmp)

    SPECIAL.all.append(Case(f"times: {id}", record))


times("multiples of 5, some below zero", lambda t: 5 * (t - 9), step=5)
times("multiples of 5 and others", lambda t: 5 * t + (t == 7), step=5)
times("far away", lambda t: 10**14 + t)
times("days", lambda t: f"2026-{1 + t // 28:02}-{1 + t % 28:02}", step="1d")
times("with zones", lambda t: f"{np.datetime64('2026-01-01T00') + t + t % 2}:00:00+0{t % 2}:00", step="1h")
times(
    "weeks from a Monday", lambda t: str(np.datetime64("2026-01-05") + 7 * t), step="1w", origin="2026-01-05"
)


@add("jackknife groups of blocks of time")
def _(tmp: Path) -> doors.Record:
    tables.save(table(rows(K=3)), tmp / "data", "part", "csv")
    return doors.run(config(str(tmp / "data" / "*"), uncertainty={"block": 4}), tmp)


@add("a cell and a group with too little data")
def _(tmp: Path) -> doors.Record:
    found = [{**r, "region": "a" if r["realization"] else "b"} for r in rows()]
    found = [r for r in found if r["region"] == "a" or r["time"] in (0, 2)]
    tables.save(table(found, group_by=("region",)), tmp / "data", "part", "csv")
    return doors.run(config(str(tmp / "data" / "*"), group_by=["region"], chain={"cycle": 8}), tmp)


# Runs that go on from others.


def days(found: list[tables.Row], number: int = 3) -> list[list[tables.Row]]:
    last = 1 + max(r["time"] for r in found)
    return [[r for r in found if r["time"] * number // last == d] for d in range(number)]


def daily(tmp: Path, parts: list[list[tables.Row]], format: str = "csv", layout: str = "wide", **more: Any):
    """A run for each part, each going on from the one before; the record of the last."""
    group_by = more.get("group_by", ())
    record: doors.Record = {}
    for number, part in enumerate(parts):
        here = tmp / f"day{number}"
        made = table(tables.lay_out(part, data.STATES[:3], layout), layout=layout, group_by=group_by)
        tables.save(made, here / "data", "part", format)
        input = {"layout": "long"} if layout == "long" else {}
        if number:
            input["resume"] = str(tmp / f"day{number - 1}" / "out" / "moments.aggmc")
        plain = config(str(here / "data" / "*"), input=input, output={"moments": True}, **more)
        record = doors.run(plain, here)
    return record


def grouped(found: list[tables.Row]) -> list[tables.Row]:
    return [{**r, "region": "north" if r["realization"] % 2 else "south"} for r in found]


@add("resume: three days")
def _(tmp: Path) -> doors.Record:
    return daily(tmp, days(rows()))


@add("resume: three days in another order, with gaps")
def _(tmp: Path) -> doors.Record:
    found = tables.drop_some(rows(), np.random.default_rng(1))
    return daily(tmp, [days(found)[i] for i in (2, 0, 1)])


@add("resume: days that overlap, one with other counts")
def _(tmp: Path) -> doors.Record:
    first, second, third = days(rows())
    return daily(tmp, [first, first[-30:] + second, tables.contradict(data.STATES)(second, _rng()) + third])


def _rng() -> np.random.Generator:
    return np.random.default_rng(8)


@add("resume: the same day twice")
def _(tmp: Path) -> doors.Record:
    first, second, _third = days(rows())
    return daily(tmp, [first, second, second])


@add("resume: a cycle in groups, JSON lines of long rows")
def _(tmp: Path) -> doors.Record:
    found = grouped(rows(K=8, T=36, period=4))
    return daily(tmp, days(found), "jsonl", "long", chain={"cycle": 4}, group_by=["region"])


@add("resume: windows, Parquet lists")
def _(tmp: Path) -> doors.Record:
    return daily(tmp, days(rows()), "parquet", "list", chain={"window": {"size": 20, "every": 10}})


@add("resume: per step")
def _(tmp: Path) -> doors.Record:
    return daily(tmp, days(rows(K=24, T=6)), chain="per-step")


@add("resume: a realization and a group that come later")
def _(tmp: Path) -> doors.Record:
    first, second, third = days(grouped(rows(K=8)))
    parts = [[r for r in first if r["region"] == "north"], [r for r in second if r["realization"] < 6], third]
    return daily(tmp, parts, group_by=["region"])


@add("refused: to resume from moments of another chain")
def _(tmp: Path) -> doors.Record:
    daily(tmp, days(rows())[:1])
    tables.save(table(rows()), tmp / "data", "part", "csv")
    resume = {"resume": str(tmp / "day0" / "out" / "moments.aggmc")}
    return doors.run(config(str(tmp / "data" / "*"), input=resume, chain={"cycle": 4}), tmp / "other")


def saved(tmp: Path, name: str, found: list[tables.Row], **more: Any) -> str:
    tables.save(table(found), tmp / name / "data", "part", "csv")
    plain = config(str(tmp / name / "data" / "*"), output={"moments": True}, **more)
    doors.run(plain, tmp / name)
    return str(tmp / name / "out" / "moments.aggmc")


KNOWN = ("--noise", "binomial:0.8", "--population", "300")


def moments(tmp: Path, *arguments: str) -> doors.Record:
    """`aggmc moments estimate`."""
    path = tmp / "again.jsonl"
    code, text = doors.command("moments", "estimate", *arguments, "-o", str(path))
    assert code == 0, text
    return doors.read_out(doors.read_lines(path))


@add("moments: merge of days, whose pairs between them are made")
def _(tmp: Path) -> doors.Record:
    files = [saved(tmp, f"day{i}", day) for i, day in enumerate(days(rows()))]
    code, text = doors.command("moments", "merge", *files, "-o", str(tmp / "all"))
    assert code == 0, text
    return moments(
        tmp, str(tmp / "all"), "--noise", "binomial:0.8", "--population", "300", "--estimator", "mom"
    )


@add("moments: merge of realizations in a cycle, estimated as stationary")
def _(tmp: Path) -> doors.Record:
    found = rows(K=8)
    files = [
        saved(tmp, f"part{i}", [r for r in found if r["realization"] % 2 == i], chain={"cycle": 4})
        for i in range(2)
    ]
    code, text = doors.command("moments", "merge", *files, "-o", str(tmp / "all"))
    assert code == 0, text
    return moments(tmp, str(tmp / "all"), *KNOWN, "--estimator", "simplex", "--chain", "stationary")


@add("moments: merge of files that hold the same records")
def _(tmp: Path) -> doors.Record:
    files = [saved(tmp, f"part{i}", rows()[: 150 + 60 * i]) for i in range(2)]
    code, text = doors.command("moments", "merge", *files, "-o", str(tmp / "all"), "--allow-overlap")
    assert code == 0, text
    return moments(
        tmp, str(tmp / "all"), "--noise", "binomial:0.8", "--population", "300", "--estimator", "cls"
    )


@add("moments: other noise and an unknown population", SEARCHED)
def _(tmp: Path) -> doors.Record:
    path = saved(tmp, "one", rows())
    return moments(tmp, path, "--noise", "binomial:0.9", "--estimator", "gmm")


@add("moments: am.estimate on a saved file")
def _(tmp: Path) -> doors.Record:
    path = saved(tmp, "one", rows(period=4), chain={"cycle": 4})
    return doors.estimate(path, chain=am.Cycle(4), noise=am.Binomial(0.8), population=300, estimator="mom")


# What is refused.


def refused(id: str, make: Any) -> None:
    """A case of a run that ends with an exit code."""

    def record(tmp: Path) -> doors.Record:
        return doors.run(make(tmp), tmp)

    SPECIAL.all.append(Case(f"refused: {id}", record))


def _file(tmp: Path, found: list[tables.Row], **more: Any) -> str:
    tables.save(table(found), tmp / "data", "part", "csv")
    return str(tmp / "data" / "*")


refused("more rejected rows than allowed", lambda tmp: config(
    _file(tmp, tables.damage(rows(), _rng(), tables.WRONG, "home")), max_rejected=3))  # fmt: skip
refused("every row is wrong", lambda tmp: config(_file(tmp, [{**r, "time": "x"} for r in rows()])))
refused("no pair", lambda tmp: config(_file(tmp, [r for r in rows() if r["time"] % 2])))
refused("no such file", lambda tmp: config(str(tmp / "none*.csv")))
refused("no such column", lambda tmp: config(_file(tmp, rows()), input={"columns": {"time": "hour"}}))
refused("more individuals than the population", lambda tmp: config(
    _file(tmp, rows(noise="exact")), noise="exact", population=299))  # fmt: skip
refused("totals of exact counts that change", lambda tmp: config(
    _file(tmp, rows()), noise="exact", population="estimate"))  # fmt: skip
refused("an unknown key", lambda tmp: config(_file(tmp, rows()), estimater="mom"))

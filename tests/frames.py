"""The same records written in every format, layout and order."""

from __future__ import annotations

import numpy as np
import polars as pl

import aggmc_beam as am

STATES = ["home", "work", "ünterwegs"]


def counts(K=6, T=40, N=200, seed=3, noise=am.Binomial(0.5)):  # noqa: B008 - frozen
    return am.simulate(
        states=3, precision=3.0, steps=T, realizations=K, population=N, noise=noise, seed=seed
    ).counts


def wide(y, states=STATES, **more):
    """One row per record that is not NaN."""
    key, time = np.nonzero(~np.isnan(y).any(2))
    values = {name: y[key, time, i] for i, name in enumerate(states)}
    return pl.DataFrame({"realization": key, "time": time, **{k: v[key] for k, v in more.items()}, **values})


def lists(frame, states=STATES):
    rest = [c for c in frame.columns if c not in states]
    return frame.select(*rest, counts=pl.concat_list(states))


def long(frame, states=STATES):
    rest = [c for c in frame.columns if c not in states]
    return frame.unpivot(states, index=rest, variable_name="state", value_name="count")


def save(frame, path):
    if path.suffix == ".parquet":
        frame.write_parquet(path)
    elif path.suffix == ".jsonl":
        frame.write_ndjson(path)
    else:
        columns = [c for c, kind in frame.schema.items() if isinstance(kind, pl.List)]
        text = [
            pl.format("[{}]", pl.col(c).cast(pl.List(pl.String)).list.join(", ")).alias(c) for c in columns
        ]
        frame.with_columns(text).write_csv(path)
    return path


def config(path, **more):
    plain = {
        "states": STATES,
        "input": {"files": str(path), **more.pop("input", {})},
        "noise": {"model": "binomial", "alpha": 0.5},
        "population": 200,
        "estimator": "mom",
        "max_rejected": 1.0,
    }
    return {**plain, **more}

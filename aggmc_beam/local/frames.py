"""Tables of other libraries as Polars frames: pandas, Arrow, DuckDB, xarray, numpy, plain dictionaries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from aggmc_beam.errors import InputError, nearest


def as_frame(data: Any, realization: str | None, time: str, state: str | None) -> pl.DataFrame | pl.LazyFrame:
    """The table as a Polars frame.

    A pandas index that has names becomes columns. An array of xarray becomes one row per realization and time:
    `realization`, `time` and `state` are its dimensions, `state` the one that is left if not named.
    """
    if isinstance(data, pl.DataFrame | pl.LazyFrame):
        return data
    try:
        return _frame(data, realization, time, state)
    except InputError:
        raise
    except Exception as error:  # any library, any error
        text = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(f"the {type(data).__name__} cannot be read as a table: {text}") from error


def _frame(data: Any, realization: str | None, time: str, state: str | None) -> pl.DataFrame:
    home = type(data).__module__.partition(".")[0]
    if is_labelled_array(data):
        return _of_xarray(data, realization, time, state)
    if home == "pandas":
        return _of_pandas(data)
    if isinstance(data, Mapping):
        return pl.DataFrame({str(name): _column(values) for name, values in data.items()}, strict=False)
    if isinstance(data, np.ndarray):
        return pl.DataFrame({name: data[name] for name in data.dtype.names or ()})
    if isinstance(data, Sequence):
        return pl.from_dicts([dict(row) for row in data], infer_schema_length=None)
    if hasattr(data, "__arrow_c_stream__") or hasattr(data, "__arrow_c_array__"):
        return pl.DataFrame(data)
    if hasattr(data, "pl"):  # relations of older DuckDB
        return pl.DataFrame(data.pl())
    return _of_interchange(data)


def is_labelled_array(data: Any) -> bool:
    """Whether data are of xarray, whose dimensions have names."""
    return type(data).__module__.partition(".")[0] == "xarray"


def _column(values: Any) -> Any:
    """What Polars makes a column of; an iterator or range is listed."""
    return values if np.isscalar(values) or hasattr(values, "dtype") else list(values)


def _of_pandas(data: Any) -> pl.DataFrame:
    if any(name is not None for name in data.index.names):
        data = data.reset_index()
    twice = data.columns[data.columns.duplicated()]
    if len(twice):
        raise InputError(f"the frame has two columns named {str(twice[0])!r}; rename one of them")
    return pl.DataFrame({str(name): _series(data[name]) for name in data.columns}, strict=False)


def _series(column: Any) -> Any:
    """A pandas column without a need for pyarrow: NaN, NaT and NA in it become null where they are not numbers."""
    kind = column.dtype.kind if isinstance(column.dtype, np.dtype) else ""
    if kind and kind in "biufM":
        return column.to_numpy()
    if str(column.dtype).startswith("period["):
        weekly = str(column.dtype).startswith("period[W")
        column = column.dt.start_time.dt.strftime("%Y-%m-%d") if weekly else column.astype(str)
        return [None if text in ("NaT", "nan") else text for text in column.tolist()]
    if getattr(column.dtype, "tz", None) is not None:
        utc = column.dt.tz_convert("UTC").dt.tz_localize(None).to_numpy()
        return pl.Series(utc).dt.replace_time_zone("UTC")
    return [None if missing else value for value, missing in zip(column, column.isna(), strict=True)]


def _of_interchange(data: Any) -> pl.DataFrame:
    """Of the dataframe protocol, for whoever speaks only that."""
    if hasattr(data, "__dataframe__"):
        return pl.DataFrame(pl.from_dataframe(data))
    raise InputError(
        f"a table is needed: a frame of Polars, pandas, Arrow or DuckDB, or a dictionary of columns; "
        f"got {type(data).__name__}"
    )


def _of_xarray(data: Any, realization: str | None, time: str, state: str | None) -> pl.DataFrame:
    """A row per realization and time; steps of which nothing was observed are left out."""
    if hasattr(data, "data_vars"):
        variables = list(data.data_vars)
        if len(variables) == 1:
            data = data[variables[0]]
        else:
            state = state or "state"
            data = data.to_array(state)
    dims = list(data.dims)
    if time not in dims:
        named = ", ".join(map(str, dims))
        hint = (
            f"name the one of time in time=; there are {named}"
            if time == "time"
            else nearest(time, map(str, dims))
        )
        raise InputError(f"the array has no dimension {time!r}; {hint}")
    rest = [d for d in dims if d not in (time, realization)]
    if state is None and len(rest) == 1:
        state = str(rest[0])
    if state is None or rest != [state]:
        named = ", ".join(map(str, dims))
        raise InputError(
            f"the array has the dimensions {named}; it needs time, states and at most one more for "
            "realizations, named by the options realization, time and state"
        )
    single = realization is None or realization not in dims
    ordered = data.transpose(*([] if single else [realization]), time, state)
    values = np.asarray(ordered.values, np.float64).reshape(-1, ordered.sizes[time], ordered.sizes[state])
    K, T, S = values.shape
    rows = values.reshape(K * T, S)
    seen = ~np.isnan(rows).all(1)
    ids = np.arange(K) if single else _labels(data, str(realization), K)
    columns = {
        str(realization or "realization"): np.repeat(ids, T)[seen],
        time: np.tile(_labels(data, time, T), K)[seen],
    }
    names = [str(s) for s in _labels(data, state, S).tolist()]
    clash = [name for name in names if name in columns]
    if clash:
        raise InputError(f"a state is named {clash[0]!r} as a dimension is; rename one of them")
    return pl.DataFrame(columns | {name: rows[seen, k] for k, name in enumerate(names)})


def _labels(data: Any, dim: str, size: int) -> np.ndarray:
    """The coordinates of a dimension; numbers from 0 where it has none."""
    return np.asarray(data.coords[dim].values) if dim in data.coords else np.arange(size)

"""Bytes of sums and of states: what a run saves, and what Beam sends between workers.

From the file of a run estimates are made again under other settings, runs are joined, and a later run goes on:
records that it holds already are recognised, and pairs that straddle two runs are formed.
"""

from __future__ import annotations

import os
from dataclasses import fields
from typing import Any

import numpy as np

from aggmc_beam.clock import CALENDAR, Clock
from aggmc_beam.config.special import ChainKind, chain_to_plain
from aggmc_beam.durable import write_atomically
from aggmc_beam.errors import InputError
from aggmc_beam.noise import noise_from_dict
from aggmc_beam.records import MAX_COUNT
from aggmc_beam.sums import storage
from aggmc_beam.sums.jackknife import Replicates
from aggmc_beam.sums.moments import Counts
from aggmc_beam.sums.records import realization_numbers
from aggmc_beam.sums.spec import GAPS, ONE, POPULATIONS, REFUSED, SumSpec
from aggmc_beam.sums.state import AggregationState
from aggmc_beam.sums.steps import StepSums
from aggmc_beam.sums.sums import Sums
from aggmc_beam.sums.tracks import Tracks
from aggmc_beam.times import microseconds
from aggmc_beam.zones import Zone

#: What a header says of the file of a state, and of one of bare sums.
RUN, SUMS = "run", "sums"
FILE_NAME = "moments.aggmc"
_COUNTS = tuple(f.name for f in fields(Counts))
_LARGEST = 2**53

#: Which of the products of a label are symmetric, and which are not.
_SYMMETRIC, _LAGGED = (0, 3), slice(1, 3)


def find_run(path: str | os.PathLike[str]) -> str:
    """The file meant by a path, a path without its ending, or an output directory."""
    name = os.fspath(path)
    if os.path.isdir(name):
        return os.path.join(name, FILE_NAME)
    if not os.path.exists(name) and os.path.exists(f"{name}.aggmc"):
        return f"{name}.aggmc"
    return name


def sums_to_bytes(sums: Sums) -> bytes:
    return storage.pack(SUMS, {"S": sums.states}, halved(sums_to_arrays(sums)))


def sums_from_bytes(data: bytes, source: str = "these bytes") -> Sums:
    with storage.unpacked(data, SUMS, source) as (meta, arrays):
        S = meta["S"]
        if type(S) is not int or S < 1:
            raise InputError(f"the number of states is {S!r}")
        return sums_from_arrays(S, arrays)


def state_to_bytes(state: AggregationState, deflate: bool = True) -> bytes:
    """Everything, to go on from later or elsewhere; quicker and larger without `deflate`."""
    spec = state.spec
    chain = chain_to_plain(spec.chain)
    if chain is None:
        raise InputError("sums of a chain with given covariates cannot be saved")
    meta: dict[str, Any] = {
        "states": list(spec.states),
        "chain": chain,
        "noise": spec.noise.to_dict(),
        "populations": spec.populations,
        "undo": spec.undo,
        "population": spec.population,
        "clock": [
            spec.clock.step,
            spec.clock.origin,
            *([] if spec.clock.zone.is_utc else [spec.clock.zone.name]),
        ],
        "group_by": list(spec.group_by),
        "realization": spec.realization,
        "replicates": spec.replicates,
        "block": spec.block,
        "of_shares": state.of_shares,
        "groups": [list(group) for group in state.groups],
    }
    if spec.gaps != REFUSED:
        meta["gaps"] = spec.gaps
    rules = [(r.groups, r.per_key, r.span, r.start) for r in state.rules]
    arrays = {
        **halved(sums_to_arrays(state.sums)),
        **state.tracks.to_arrays(),
        "rules": np.array(rules, np.int64).reshape(-1, 4),
        "group_of": np.asarray(state.group_of, np.int64),
        "population": np.where(np.isnan(state.population), 0.0, state.population),
    }
    if state.names.dtype.kind == "i":
        arrays["names"] = np.asarray(state.names, np.int64)
    else:
        meta["names"] = [str(name) for name in state.names.tolist()]
    return storage.pack(RUN, meta, arrays, deflate)


def state_from_bytes(data: bytes | memoryview, source: str = "these bytes") -> AggregationState:
    with storage.unpacked(data, RUN, source) as (meta, arrays):
        state = AggregationState(_spec(meta))
        S = state.spec.columns
        state.groups = [_names(group, "groups", distinct=False) for group in meta["groups"]]
        if len(set(state.groups)) != len(state.groups):
            raise InputError("its groups are not all different")
        state.rules = [
            _rule(row) for row in storage.array(arrays, "rules", "i", len(state.groups), 4).tolist()
        ]
        names: np.ndarray = np.array(_names(meta["names"], "realizations", distinct=False), object) \
            if "names" in meta else storage.array(arrays, "names", "i", None)  # fmt: skip
        state.names, state.numbers = names, realization_numbers(names)
        state.group_of = storage.array(arrays, "group_of", "i", len(names))
        if ((state.group_of < 0) | (state.group_of >= len(state.groups))).any():
            raise InputError("its realizations are of groups that it does not name")
        if len(set(zip(state.group_of.tolist(), names.tolist(), strict=True))) != len(names):
            raise InputError("its realizations are not all different")
        population = storage.array(arrays, "population", "f", len(names))
        if ((population < 0) | (population >= MAX_COUNT)).any():
            raise InputError("its populations are not those of any data")
        state.population = np.where(population > 0, population, np.nan)
        state.sums, state.tracks = sums_from_arrays(S, arrays), Tracks.from_arrays(S, arrays)
        groups = max(
            int(state.sums.label[:, 0].max(initial=-1)), int(state.sums.steps.key[:, 0].max(initial=-1))
        )
        if groups >= len(state.groups) or int(state.tracks.key.max(initial=-1)) >= len(names):
            raise InputError("it holds sums of groups or realizations that it does not name")
        state.of_shares = bool(meta["of_shares"])
        if state.of_shares and state.spec.populations == ONE:
            raise InputError("its sums are of shares, but it knows no populations")
        state.index_groups()
        return state


def save_run(state: AggregationState, path: str | os.PathLike[str]) -> None:
    write_atomically(path, state_to_bytes(state))


def load_run(path: str | os.PathLike[str]) -> AggregationState:
    """The state that a run saved: a file, or the directory of its output."""
    source = find_run(path)
    return state_from_bytes(storage.read_bytes(source), source)


def load(path: str | os.PathLike[str]) -> AggregationState | Sums:
    """Whichever the file holds."""
    source = find_run(path)
    data = storage.read_bytes(source)
    if storage.kind_of(data, source) == RUN:
        return state_from_bytes(data, source)
    return sums_from_bytes(data, source)


def sums_to_arrays(sums: Sums) -> dict[str, np.ndarray]:
    """Everything but the number of states, for `storage.pack`."""
    sums, steps = sums.canonical(), sums.steps
    counts = [[group, *(getattr(c, n) for n in _COUNTS)] for group, c in sorted(sums.counts.items())]
    arrays = {
        "label": sums.label,
        "centre": sums.centre,
        "number": sums.number,
        "realizations": sums.realizations,
        "ends": sums.ends,
        "product": sums.product,
        "counts": np.array(counts, np.int64).reshape(-1, 1 + len(_COUNTS)),
        "step_width": np.array(sorted(steps.width.items()), np.int64).reshape(-1, 2),
        "step_number": steps.number,
        "step_total": steps.total,
    }
    # By column, so that each takes the fewest bytes.
    for i, name in enumerate(("group", "replicate", "bin", "kind")):
        arrays[f"step_{name}"] = np.ascontiguousarray(steps.key[:, i])
    weighted = not (sums.weight == sums.number).all()
    if weighted:
        arrays |= {"weight": sums.weight, "inverse_weight": sums.inverse_weight, "step_weight": steps.weight}
    return arrays


def halved(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """With products that are symmetric, those at lag 0, as their upper halves: matrices of many small groups are
    most of a file. Rounding may leave those of fractions not quite symmetric; they stay as they are."""
    product = arrays["product"]
    for k in _SYMMETRIC:
        if not np.array_equal(product[:, k], product[:, k].swapaxes(-1, -2)):
            return arrays
    i, j = np.triu_indices(product.shape[-1])
    rest = {name: array for name, array in arrays.items() if name != "product"}
    halves = np.stack([product[:, k, i, j] for k in _SYMMETRIC], 1)
    return {**rest, "symmetric": halves, "lagged": product[:, _LAGGED]}


def _products(S: int, L: int, arrays: storage.Arrays) -> np.ndarray:
    """[L, 4, S, S], from halves or as they are, as in the state of a stream."""
    if "symmetric" not in arrays:
        return storage.array(arrays, "product", "f", L, 4, S, S)
    i, j = np.triu_indices(S)
    halves = storage.array(arrays, "symmetric", "f", L, 2, len(i))
    product = np.empty((L, 4, S, S))
    for half, k in enumerate(_SYMMETRIC):
        product[:, k, i, j] = product[:, k, j, i] = halves[:, half]
    product[:, _LAGGED] = storage.array(arrays, "lagged", "f", L, 2, S, S)
    return product


def sums_from_arrays(S: int, arrays: storage.Arrays) -> Sums:
    """The inverse of `sums_to_arrays`; sums that no data can have are an `InputError`."""
    label = storage.array(arrays, "label", "i", None, 3)
    L = len(label)
    number = storage.array(arrays, "number", "i", L, 3)
    realizations = storage.array(arrays, "realizations", "i", L)
    weight, inverse = number.astype(np.float64), number[:, 0].astype(np.float64)
    if weighted := "weight" in arrays:
        weight = storage.array(arrays, "weight", "f", L, 3)
        inverse = storage.array(arrays, "inverse_weight", "f", L)
    if (number < 0).any() or (number >= _LARGEST).any() or (np.abs(realizations) >= _LARGEST).any():
        raise InputError("it counts more records than there can be, or fewer than none")
    if ((number > 0) != (weight > 0)).any() or (inverse < 0).any():
        raise InputError("its weights do not fit its numbers of pairs")
    order = np.lexsort((label[:, 2], label[:, 1], label[:, 0]))
    twice = L > 1 and not (np.diff(label, axis=0) != 0).any(1).all()
    if (label[:, [0, 2]] < 0).any() or not np.array_equal(order, np.arange(L)) or twice:
        raise InputError("its sums are not those of any groups")
    counts = storage.array(arrays, "counts", "i", None, 1 + len(_COUNTS))
    if (np.abs(counts) >= _LARGEST).any():
        raise InputError("it counts more records than there can be")
    return Sums(
        label,
        storage.array(arrays, "centre", "f", L, S),
        number,
        weight,
        inverse,
        realizations,
        storage.array(arrays, "ends", "f", L, 5, S),
        _products(S, L, arrays),
        _steps_from_arrays(S, arrays, weighted),
        {group: Counts(*row) for group, *row in counts.tolist()},
    )


def _steps_from_arrays(S: int, arrays: storage.Arrays, weighted: bool) -> StepSums:
    number = storage.array(arrays, "step_number", "i", None)
    m = len(number)
    key = np.column_stack(
        [storage.array(arrays, f"step_{name}", "i", m) for name in ("group", "replicate", "bin", "kind")]
    )
    weight = storage.array(arrays, "step_weight", "f", m) if weighted else number.astype(np.float64)
    width = storage.array(arrays, "step_width", "i", None, 2)
    steps = StepSums(
        S, key, number, weight, storage.array(arrays, "step_total", "f", m, S), dict(width.tolist())
    )
    return steps.checked()


def _spec(meta: dict[str, Any]) -> SumSpec:
    states = _names(meta["states"], "states")
    step, origin, *zone = meta["clock"]
    clock_fits = type(origin) is int and (isinstance(step, str) or (type(step) is int and step > 0))
    numbers = [meta["replicates"], meta["block"]]
    sizes = all(n is None or (type(n) is int and n > 0) for n in numbers)
    N = meta["population"]
    fits = N is None or (isinstance(N, int | float) and 0 < N < MAX_COUNT)
    gaps = meta.get("gaps", REFUSED)
    known = meta["populations"] in POPULATIONS and isinstance(meta["undo"], bool) and gaps in GAPS
    if not (states and clock_fits and sizes and fits and known):
        raise InputError("its header is not that of a run")
    if isinstance(step, str) and step not in CALENDAR:
        microseconds(step)
    if not all(isinstance(name, str) for name in zone) or len(zone) > 1:
        raise InputError("its time zone is none")
    return SumSpec(
        states,
        ChainKind().read(meta["chain"], "chain"),
        noise_from_dict(meta["noise"]),
        meta["populations"],
        meta["undo"],
        N,
        Clock(step, origin, Zone(*zone)),
        _names(meta["group_by"], "columns of groups"),
        numbers[0],
        numbers[1],
        _name(meta["realization"]),
        gaps,
    )


def _rule(row: list[int]) -> Replicates:
    if row[0] < 0 or min(row[1:3]) < 1 or max(map(abs, row)) >= _LARGEST:
        raise InputError("its jackknife groups are not those of any data")
    return Replicates(*row)


def _name(given: Any) -> str:
    if not isinstance(given, str):
        raise InputError("its column of realizations has no name")
    return given


def _names(given: Any, what: str, distinct: bool = True) -> tuple[str, ...]:
    if not isinstance(given, list) or not all(isinstance(n, str) for n in given):
        raise InputError(f"its {what} are not a list of names")
    if distinct and len(set(given)) != len(given):
        raise InputError(f"its {what} are not all different")
    return tuple(given)


def describe(state: AggregationState) -> dict[str, Any]:
    """What a state holds, in a few words, for `aggmc moments show`."""
    total, spec = state.sums.total, state.spec
    return {
        "states": list(spec.states),
        "chain": chain_to_plain(spec.chain),
        "groups": len(state.groups),
        "realizations": len(state.names),
        "records": total.records,
        "pairs": total.pairs,
        "duplicates": total.counts.duplicates,
        "overlaps": total.counts.overlaps,
        "gaps": total.gaps,
        "rejected": total.counts.rejected,
        "open records": len(state.tracks.open_time),
    }

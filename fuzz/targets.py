"""What is fuzzed: functions from any bytes to nothing. Whatever they raise is a defect.

A target calls one way into the product. `InputError` and `Rejected` are its proper answers to bad
input, so they are caught here; an answer that is not finite and carries no flag is raised as
`Unflagged`. Targets use no randomness: the same bytes take the same way.
"""

from __future__ import annotations

import hashlib
import struct
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

import aggmc_beam as am
from aggmc_beam.clock import Clock
from aggmc_beam.config import load_config, read_config, set_key
from aggmc_beam.config.reader import read_yaml
from aggmc_beam.errors import InputError, Rejected
from aggmc_beam.estimators.registry import NAMES
from aggmc_beam.fit.fit import Settings
from aggmc_beam.fit.groups import estimate_groups
from aggmc_beam.records import Schema, parse_json, read_record, realization_number
from aggmc_beam.result import Estimate, Estimates
from aggmc_beam.sums import storage
from aggmc_beam.sums.state import AggregationState

warnings.simplefilter("error")  # a RuntimeWarning of numpy is a defect as well

STATES = ("home", "work", "<b>")
SCHEMAS = (
    Schema(STATES, "counts", clock=Clock("1h"), group_by=("region",), population="people"),
    Schema(STATES, "counts", group_by=("region",)),
    Schema(STATES, STATES, clock=Clock(5), population="people"),
    Schema(STATES, "count", state="state"),
)


class Unflagged(Exception):
    """A number that is not finite, and nothing that says so."""


@contextmanager
def proper_errors() -> Iterator[None]:
    try:
        yield
    except (InputError, Rejected):
        return


def json_record(data: bytes) -> None:
    """A line of JSON, as every engine's slow path reads it."""
    if not data:
        return
    with proper_errors():
        record = read_record(parse_json(data[1:]), SCHEMAS[data[0] % len(SCHEMAS)])
        realization_number(record.realization)
        record.realization.encode()


def message(data: bytes) -> None:
    """A Pub/Sub message: a record or an array of them, to records or dead letters."""
    from aggmc_beam.beam.coders import RecordCoder
    from aggmc_beam.beam.dead_letters import rejection
    from aggmc_beam.beam.rows import rows
    from aggmc_beam.beam.sinks import line

    if not data:
        return
    schema, coder = SCHEMAS[data[0] % len(SCHEMAS)], RecordCoder()
    for row in rows(data[1:]):
        try:
            if isinstance(row, Rejected):
                raise row
            record = read_record(row, schema)
        except Rejected as error:
            line(rejection(data[1:] if isinstance(row, Rejected) else row, str(error)))
            continue
        coder.decode(coder.encode(record))


def yaml_config(data: bytes) -> None:
    """A config file, as `aggmc run` reads it."""
    with proper_errors():
        read_config(read_yaml(data.decode("utf-8", "surrogateescape")))


def override(data: bytes) -> None:
    """What `--set` is given, on a config that is right."""
    plain: dict[str, Any] = {"input": {"files": "a.csv"}, "noise": {"model": "binomial", "alpha": 0.5}}
    with proper_errors():
        set_key(plain, data.decode("utf-8", "surrogateescape"))
        read_config(plain)


def raw_file(data: bytes) -> None:
    """Any bytes as a file of moments; nearly all fail at the checksum."""
    for decode in (AggregationState.from_bytes, am.Sums.from_bytes):
        with proper_errors():
            decode(data)


def sealed_file(data: bytes) -> None:
    """A file of moments from a stranger who knows the format: the checksum is right, the rest is not."""
    for kind, decode in DECODERS.items():
        with proper_errors():
            use(decode(sealed(data, kind)))


DECODERS: dict[bytes, Callable[[bytes], Any]] = {
    b"run": AggregationState.from_bytes,
    b"sums": am.Sums.from_bytes,
}


def sealed(data: bytes, kind: bytes) -> bytes:
    """Header length (2 bytes), header and arrays, made into a file of `kind` with its checksum."""
    (length,) = struct.unpack("<H", data[:2].ljust(2, b"\0"))
    header = data[2 : 2 + length].replace(b"KIND", kind)
    body = storage.MAGIC + struct.pack("<II", storage.VERSION, len(header)) + header + data[2 + length :]
    return body + hashlib.sha256(body).digest()


def use(found: Any) -> None:
    """Do with loaded sums what a user would: save, join, estimate."""
    settings = Settings(am.Binomial(0.5), 100.0, "mom")
    if isinstance(found, AggregationState):
        found.to_bytes()
        (found + found).to_bytes()
        for _, estimate in estimate_groups(found, Settings(found.spec.noise, chain=found.spec.chain)):
            if not isinstance(estimate, am.InputError):
                flagged(estimate)
    else:
        found.to_bytes()
        (found + found).to_bytes()
        flagged(am.estimate(found, noise=settings.noise, population=100, estimator=settings.estimator))


def coders(data: bytes) -> None:
    """Encoded values of Beam: every coder on the same bytes."""
    from aggmc_beam.beam import stream_coders  # noqa: F401  (registers its own)
    from aggmc_beam.beam.coders import SmallCoder

    # The coder of accumulators belongs to a CombineFn.
    for coder in (c for c in SmallCoder.__subclasses__() if c.__init__ is SmallCoder.__init__):
        with proper_errors():
            coder().decode(data)


NOISES = (am.Exact(), am.Binomial(0.5), am.Poisson(0.5), am.Gaussian(1.0), am.Laplace(2.0))
CHAINS = ("stationary", "stationary", "per-step", am.Window(3), am.Cycle(2))


def counts(data: bytes) -> None:
    """Counts in an array: shape, settings and numbers all come from the bytes."""
    if len(data) < 6:
        return
    K, T, S = 1 + data[0] % 4, 1 + data[1] % 8, 1 + data[2] % 5
    noise, chain = NOISES[data[3] % len(NOISES)], CHAINS[(data[3] >> 4) % len(CHAINS)]
    values = _numbers(data[6:], data[5], K * T * S).reshape(K, T, S)
    with np.errstate(all="ignore"):
        most = float(np.nanmax(np.abs(values).sum(2), initial=1)) + 1
    N: Any = "estimate" if data[4] & 128 else most
    with proper_errors():
        flagged(
            am.estimate(values, noise=noise, population=N, estimator=NAMES[data[4] % len(NAMES)], chain=chain)
        )


def _numbers(data: bytes, form: int, n: int) -> np.ndarray:
    """n numbers: small counts, counts of up to 10^15, or any floats; the bytes are repeated as needed."""
    kind, width = (("u1", 1), ("<u2", 2), ("<f8", 8), ("<i8", 8))[form % 4]
    data = (data or b"\0") * (1 + n * width // max(1, len(data)))
    found = np.frombuffer(data[: n * width], kind).astype(np.float64)
    return found % 1e15 if form % 4 == 3 else found


def flagged(found: Estimate | Estimates) -> None:
    """Refuse an answer that is not finite where nothing says so."""
    for one in (found,) if isinstance(found, Estimate) else found:
        unseen = {f["state"] for f in one.diagnostics["rows"] if f["flag"] in ("never-seen", "undetermined")}
        known = [name not in unseen for name in one.states]
        if not np.isfinite(one.transition_matrix[known]).all():
            raise Unflagged(f"P is {one.transition_matrix.tolist()}, flagged are {sorted(unseen)}")
        if not np.isfinite(one.stationary).all() or not np.isfinite(one.population):
            raise Unflagged(f"shares {one.stationary.tolist()}, population {one.population}")
        if not np.isfinite(one.standard_error[known]).all() and not one.diagnostics["interval"]["unknown"]:
            raise Unflagged(f"standard errors are {one.standard_error.tolist()}")
        Estimate.from_json(one.to_json())


def table(data: bytes) -> None:
    """A file of records through the local engine: JSON lines, or CSV wide or long."""
    if not data:
        return
    layout = ("wide", "long")[data[0] >> 1 & 1]
    name = ("rows.jsonl", "rows.csv")[data[0] & 1]
    head = b"" if name.endswith("jsonl") else HEADS[layout]
    with tempfile.TemporaryDirectory(prefix="aggmc-fuzz-") as folder, proper_errors():
        path = Path(folder) / name
        path.write_bytes(head + data[1:])
        found = am.estimate(path, noise=am.Binomial(0.5), population=50, estimator="mom", layout=layout)
        flagged(found)


HEADS = {"wide": b"realization,time,home,work\n", "long": b"realization,time,state,count\n"}


def config_file(data: bytes) -> None:
    """A config as a file, with its byte order mark, encoding and size."""
    with tempfile.TemporaryDirectory(prefix="aggmc-fuzz-") as folder, proper_errors():
        path = Path(folder) / "run.yaml"
        path.write_bytes(data)
        load_config(path)


TARGETS: dict[str, Callable[[bytes], None]] = {
    f.__name__: f
    for f in (
        json_record, message, yaml_config, config_file, override, raw_file, sealed_file, coders, counts,
        table,
    )
}  # fmt: skip

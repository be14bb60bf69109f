"""One target under atheris, until a number of runs, a time or a defect: `one.py TARGET [its options]`."""

from __future__ import annotations

import random
import sys
import time
from pathlib import Path

import atheris
from scipy import linalg, optimize, sparse, special  # noqa: F401 - imported late by estimators

#: Processor time that one input may take. Wall time would depend on what else the machine does.
LIMIT = 1.0

with atheris.instrument_imports(include=["aggmc_beam", "yaml"]):
    from structured import STRUCTURED
    from targets import TARGETS

    import aggmc_beam.local.table
    import aggmc_beam.report.words

    name = sys.argv[1]
    if name in ("message", "coders"):
        import aggmc_beam.beam.coders
        import aggmc_beam.beam.parsing
        import aggmc_beam.beam.sinks  # noqa: F401


class Hang(Exception):
    """An input that took more than `LIMIT` seconds of processor time."""


call = TARGETS[name] if name in TARGETS else STRUCTURED[name].hypothesis.fuzz_one_input


# What is imported at first use is not the fault of the input that comes first.
corpus = [path.read_bytes() for path in sorted((Path(__file__).parent / "corpus" / name).glob("*"))]
for warm_up in corpus or [random.Random(seed).randbytes(4096) for seed in range(20)]:
    call(warm_up)


def once(data: bytes) -> None:
    began = time.thread_time()
    call(data)
    spent = time.thread_time() - began
    if spent > LIMIT:
        raise Hang(f"{spent:.1f} s of processor time")


atheris.Setup([sys.argv[0], *sys.argv[2:]], once)
atheris.Fuzz()

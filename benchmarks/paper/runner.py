"""Cells run side by side and kept as files, so that an interrupted run goes on where it was."""

from __future__ import annotations

import csv
import io
import json
import multiprocessing
import os
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, astuple, fields
from functools import partial
from pathlib import Path

from aggmc_beam.durable import write_atomically
from benchmarks.paper.grid import Cell
from benchmarks.paper.trial import Row, run

Progress = Callable[[str, int, int | None], None]


def kept(cell: Cell, directory: Path) -> tuple[list[Row], float]:
    """The rows of a cell and the processor seconds they took, from its file if there is one."""
    path = directory / f"{cell.key()}.json"
    if path.exists():
        found = json.loads(path.read_text(encoding="utf-8"))
        return [Row(**row) for row in found["rows"]], found["seconds"]
    started = time.process_time()
    rows = run(cell)
    seconds = time.process_time() - started
    directory.mkdir(parents=True, exist_ok=True)
    plain = {"seconds": seconds, "rows": [asdict(row) for row in rows]}
    write_atomically(path, json.dumps(plain).encode())
    return rows, seconds


def run_cells(
    cells: Sequence[Cell], directory: Path, processes: int, progress: Progress
) -> tuple[list[Row], float]:
    """The rows of all cells in their order, and the processor seconds behind them."""
    one = partial(kept, directory=directory)
    if processes == 1:
        found = _collected(map(one, cells), len(cells), progress)
    else:
        # One BLAS thread each: matrices are small, and results do not depend on the number of cores.
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
        with multiprocessing.get_context("spawn").Pool(processes) as pool:
            found = _collected(pool.imap(one, cells), len(cells), progress)
    return [row for rows, _ in found for row in rows], sum(seconds for _, seconds in found)


def _collected(
    results: Iterable[tuple[list[Row], float]], total: int, progress: Progress
) -> list[tuple[list[Row], float]]:
    found = []
    for result in results:
        found.append(result)
        progress("trials", len(found), total)
    return found


def write_csv(rows: Iterable[Row], path: Path) -> None:
    """One line per trial, noise model and estimator; numbers with all their digits."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([field.name for field in fields(Row)])
    writer.writerows(astuple(row) for row in rows)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, text.getvalue().encode())

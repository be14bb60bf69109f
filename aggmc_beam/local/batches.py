"""Batches of rows as they were read, and their way through several threads in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np
import polars as pl

Item = TypeVar("Item")
Made = TypeVar("Made")


@dataclass(frozen=True)
class Batch:
    """Some rows as they were read: `frame` has the columns that matter, `rows` the number of each in its file.

    `raw` gives the row at a position as `read_record` takes it, or raises `Rejected` with the reason; `broken`
    are the positions of rows that only `raw` can tell. `is_json`: text may stand for what is no text in JSON.
    """

    frame: pl.DataFrame
    rows: np.ndarray
    raw: Callable[[int], Mapping[str, Any]]
    broken: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    is_json: bool = False

    def head(self, rows: int) -> Batch:
        """The first rows."""
        return replace(
            self, frame=self.frame.head(rows), rows=self.rows[:rows], broken=self.broken[self.broken < rows]
        )


def in_order(work: Callable[[Item], Made], items: Iterable[Item]) -> Iterator[Made]:
    """What `work` makes of the items, in their order. As many are worked on at once as Polars has threads, and
    no more are held.

    >>> list(in_order(str.upper, ["a", "b", "c"]))
    ['A', 'B', 'C']
    """
    threads = pl.thread_pool_size()
    if threads == 1:
        yield from map(work, items)
        return
    with ThreadPoolExecutor(threads) as pool:
        waiting: deque[Future[Made]] = deque()
        for item in items:
            waiting.append(pool.submit(work, item))
            if len(waiting) > threads:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()

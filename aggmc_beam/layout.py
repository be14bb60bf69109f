"""Records written to the rows of an array, wherever they were: to pick them later would take longer."""

from __future__ import annotations

from typing import Any

import numpy as np

from aggmc_beam.native import compiled

#: Values that are written at once.
TOGETHER = 1 << 18
#: Numbers of so many bytes are copied by compiled loops, whatever they are.
_SIGNED: dict[int, Any] = {1: np.int8, 2: np.int16, 4: np.int32, 8: np.int64}


def laid_out(values: np.ndarray, start: np.ndarray, rows: int, over: Any = map) -> np.ndarray:
    """An array of so many `rows` with the records [n, S] from the rows `start` on, as many from each as there
    are records for each. Other rows may hold anything. `over` is a map that may run its calls at once.

    >>> laid_out(np.array([[1], [2], [3], [4]]), np.array([2, 0]), 4).ravel().tolist()
    [3, 4, 1, 2]
    """
    S, each = values.shape[1], len(values) // max(len(start), 1)
    out = np.empty((rows, S), values.dtype)
    most = max(1, TOGETHER // max(each * S, 1))

    def write(first: int) -> None:
        part, to = values[first * each : (first + most) * each], start[first : first + most]
        if compiled is not None and out.itemsize in _SIGNED:
            signed = _SIGNED[out.itemsize]
            compiled.lay_out(part.view(signed), to, out.view(signed))
        else:
            out[(to[:, None] + np.arange(each)).ravel()] = part

    for _ in over(write, range(0, len(start), most)):
        pass
    return out

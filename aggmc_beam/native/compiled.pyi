"""Inner loops in C. They let other threads run, and read arrays as they lie in memory."""

import numpy as np

def sum_line(
    values: np.ndarray,
    record: np.ndarray,
    each: bool,
    place: np.ndarray,
    first: np.ndarray,
    centre: np.ndarray,
    products: np.ndarray,
    by_step: np.ndarray | None,
) -> bool:
    """Find the sums of a line of R realizations; False if a value less the centre is beyond 4,095.

    `values` [n, S] are those of the records, of 16 or 32 bits. Realization r has the places from place[r] to
    place[r + 1] (`place` [R + 1] begins with 0), of which the last two are empty. `record` [places] tells the
    record of `each` place, -1 where there is none; or else [R] the first record of each realization, whose
    others follow.

    Found are the `products` [lags, S, S] of records less the `centre` [S], at lags 0, 1, ...; and their sums
    `by_step` [steps, S], where the first place of realization r is at step first[r]. These two are of floats,
    and exact.
    """

def narrow(values: np.ndarray, out: np.ndarray) -> bool:
    """Write whole numbers [n] into an array [n] of 16 or 32 bits each; False if some do not fit."""

def lay_out(values: np.ndarray, start: np.ndarray, out: np.ndarray) -> None:
    """Write records [n, S] of 16, 32 or 64 bits to the rows of an array [rows, S] of the same type: as many
    from each `start` [m] on as there are for each."""

"""Inner loops in C. They let other threads run, and read arrays as they lie in memory."""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

def sum_lines(
    values: np.ndarray,
    record: np.ndarray,
    each: bool,
    place: np.ndarray,
    first: np.ndarray,
    cuts: np.ndarray,
    centre: np.ndarray,
    products: np.ndarray,
    by_step: np.ndarray | None,
) -> bool:
    """Find the sums of lines of realizations; False if a value less the centre is beyond 4,095.

    `values` [n, S] are those of the records, of 8, 16 or 32 bits. Realization r of R has the places from
    place[r] to place[r + 1] (`place` [R + 1] begins with 0), of which the last two are empty. `record`
    [places] tells the record of `each` place, -1 where there is none; or else [R] the first record of each
    realization, whose others follow. Line i of L has the realizations from cuts[i] to cuts[i + 1].

    Found are the `products` [L, lags, S, S] of records less the `centre` [L, S] of their line, at lags 0, 1,
    ...; and their sums `by_step` [L, steps, S], where the first place of realization r is at step first[r].
    These two are of floats, and exact below 2^53; they hold anything where the answer is False.
    """

def sum_lone(
    values: np.ndarray,
    record: np.ndarray,
    place: np.ndarray,
    first: np.ndarray,
    centre: np.ndarray,
    sums: np.ndarray,
    number: np.ndarray,
) -> None:
    """Find, of one line as `sum_lines` is told of it, with the record of each place: the `number` [5, steps]
    of records at each step, and of those without a neighbour one step later, one earlier, two later and two
    earlier; and of these four kinds the `sums` [4, steps, S], less the `centre` [S]."""

def narrow(values: np.ndarray, out: np.ndarray) -> bool:
    """Write whole numbers [n] into an array [n] of 16 or 32 bits each; False if some do not fit."""

def lay_out(values: np.ndarray, start: np.ndarray, out: np.ndarray) -> None:
    """Write records [n, S] of 8 to 64 bits to the rows of an array [rows, S] of the same type: as many
    from each `start` [m] on as there are for each."""

def count_lines(text: memoryview) -> int:
    """How many lines end in a text."""

def parse_lines(text: memoryview, around: list[bytes], out: list[np.ndarray | None]) -> bool:
    """Read as many lines as each array has places; False if these are not all of the text, or one is not as
    it should be.

    `around` is what is before each field and, at last, at the end of a line. A field is a whole number of up
    to 18 digits, with no character more than it needs, and goes to an array of 64 bits, or of 32 bits if it
    fits. Where `out` is None, a field is any text without quotes, up to the first character of what comes
    after it. The text ends with the end of a line.
    """

def firsts(values: np.ndarray, size: int, out: np.ndarray) -> bool:
    """Write the first number of each stretch of `size` whole numbers, the last of which may be shorter, into
    an array of the same type; whether all numbers of each stretch are equal."""

def heads(values: np.ndarray, out: np.ndarray) -> int:
    """Write where each stretch of equal whole numbers begins into an array of 64 bits each; how many there
    are, or -1 if there are more than it holds."""

def bounds(values: np.ndarray, heads: np.ndarray, least: np.ndarray, most: np.ndarray) -> tuple[int, int]:
    """Write the least and the largest number of each stretch of `values` that begins at one of the `heads`,
    all of 64 bits. How often a number is less than that before it in its stretch, and how often equal."""

def repeats(text: np.ndarray, period: int) -> bool:
    """Whether each byte is the one so many bytes before it."""

def means(sums: np.ndarray, number: np.ndarray, centre: np.ndarray, out: np.ndarray) -> None:
    """Write the means [m, S] of so many records [m] each, given their sums [m, S] about a centre [S]; zero
    where there is none and the sum is zero. All are of floats."""

class Rows:
    """Dictionaries, each written to a row of an array: what it has under some names, each to its place."""

    number: int
    """How many have been written to the array."""

    def __init__(
        self, places: dict[str, int], lists: bool, width: int, other: Callable[[Any], Iterable[Any]]
    ) -> None:
        """Places are 0, 1, ... up to the width; with `lists`, what comes last is a list that fills the
        rest."""

    def write_to(self, out: np.ndarray) -> None:
        """Begin anew, with an array [n, width] of 32 bits."""

    def take(self, element: Any, /) -> Iterable[Any]:
        """Write a row and return nothing; or what `other` tells of it, if it is no dictionary, lacks
        something or holds anything but integers that fit, or if the array is full."""

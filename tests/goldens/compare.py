"""Where two records differ first."""

from __future__ import annotations

from typing import Any

#: Shares and their errors below this are zero but for rounding.
SMALL = 1e-3


def difference(
    found: Any, expected: Any, tolerance: float, where: str = "", size: float | None = None
) -> str | None:
    """The first field that differs, with both values; None if there is none.

    Whole numbers and text must be the same, other numbers near: `tolerance` times the largest number of
    their array, which is `size` within one, or times `SMALL` where all are smaller.

    >>> difference({"P": [[0.25, 0.75]]}, {"P": [[0.5, 0.5]]}, 1e-12)
    'P[0][0]: found 0.25, expected 0.5'
    """
    if isinstance(expected, dict) and isinstance(found, dict):
        for name in [*expected, *found]:
            one, other = found.get(name, "nothing"), expected.get(name, "nothing")
            different = difference(one, other, tolerance, f"{where}.{name}" if where else str(name))
            if different is not None:
                return different
        return None
    if isinstance(expected, list) and isinstance(found, list) and len(found) == len(expected):
        size = max((abs(x) for x in _numbers(expected)), default=0.0) if size is None else size
        pairs = enumerate(zip(found, expected, strict=True))
        each = (difference(a, b, tolerance, f"{where}[{i}]", size) for i, (a, b) in pairs)
        return next((different for different in each if different is not None), None)
    if _is_number(found) and _is_number(expected) and float in (type(found), type(expected)):
        same = abs(found - expected) <= tolerance * max(abs(expected) if size is None else size, SMALL)
    else:
        same = type(found) is type(expected) and found == expected
    return None if same else f"{where}: found {_short(found)}, expected {_short(expected)}"


def _numbers(value: Any) -> list[float]:
    if isinstance(value, list):
        return [x for inner in value for x in _numbers(inner)]
    return [value] if _is_number(value) else []


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:200]}..."

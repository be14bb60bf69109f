"""What the dead-letter output keeps of bad input can be written by any coder."""

from __future__ import annotations

from typing import Any


def writable(value: Any) -> Any:
    """Plain values whose text is valid Unicode: an unpaired surrogate stands as its escape.

    >>> writable({"name": "a\\ud800"})
    {'name': 'a\\\\ud800'}
    """
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, dict):
        return {writable(k): writable(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [writable(v) for v in value]
    return value

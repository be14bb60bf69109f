"""The numbers that the page's script needs, as JSON that cannot end its script element."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from aggmc_beam.report.collection import DIGITS, Collection, Item
from aggmc_beam.report.figures import DARK, MOST_LABELLED, SHADES, observed_shares
from aggmc_beam.report.markup import Markup, clean
from aggmc_beam.report.words import Finding

#: Probabilities are written as whole numbers of this unit, in few characters.
UNIT = 10**DIGITS


class Strings:
    """Each text once; items refer to it by number."""

    def __init__(self) -> None:
        self.known: dict[str, int] = {}

    def __call__(self, text: str) -> int:
        return self.known.setdefault(clean(text), len(self.known))


def payload(
    shown: Collection,
    texts: Sequence[tuple[Sequence[tuple[str, str]], Sequence[str], Sequence[Finding]]],
    counts: Sequence[Sequence[tuple[str, str]]],
) -> Markup:
    """JSON with every `<`, `>` and `&` written as an escape.

    `texts` holds facts, sentences and findings of each item; `counts` what was used of each.
    """
    strings = Strings()
    items = []
    for x, (facts, sentences, findings), used in zip(shown.items, texts, counts, strict=True):
        items.append(
            {
                "g": x.group,
                "c": x.cell,
                "r": x.refresh,
                "t": x.position,
                "N": _size(x.source.get("population")),
                "P": _whole(x.P),
                "lo": _whole(x.lower),
                "hi": _whole(x.upper),
                "pi": _whole(x.stationary),
                "mu": _whole(observed_shares(x)),
                "base": _baselines(x),
                "facts": [strings(value) for _, value in facts],
                "short": [strings(text) for text in sentences],
                "found": [[strings(t) for t in _five(f)] for f in findings],
                "counts": [strings(value) for _, value in used],
            }
        )
    data = {
        "states": [clean(s) for s in shown.states],
        "groups": [clean(s) for s in shown.groups],
        "cells": [clean(s) for s in shown.cells],
        "ticks": [clean(s) for s in shown.ticks],
        "unit": UNIT,
        "shades": SHADES,
        "dark": DARK,
        "many": MOST_LABELLED,
        "items": items,
        "strings": list(strings.known),
    }
    return embed(data)


def embed(data: Any) -> Markup:
    """JSON for a script element; no text in it can close the element or open a comment.

    >>> embed("</script>")
    '"\\\\u003c/script\\\\u003e"'
    """
    text = json.dumps(data, allow_nan=False, separators=(",", ":"), ensure_ascii=False)
    for sign in "<>&\u2028\u2029":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return Markup(text)


def _size(population: Any) -> float | None:
    known = isinstance(population, int | float) and np.isfinite(population) and population > 0
    return float(f"{population:.6g}") if known else None


def _five(f: Finding) -> tuple[str, ...]:
    return f.tone, f.topic, f.assumed, f.found, f.todo


def _whole(values: np.ndarray) -> list[int | None]:
    flat = np.ravel(values)
    return [round(v * UNIT) if np.isfinite(v) else None for v in flat.tolist()]


def _baselines(x: Item) -> Mapping[str, list[int | None] | None]:
    """Row by row; one row if all are alike, and None for the identity."""
    made: dict[str, list[int | None] | None] = {}
    for name, B in x.baselines.items():
        if np.array_equal(B, np.eye(len(B))):
            made[name] = None
        else:
            made[name] = _whole(B[0] if (B == B[0]).all() else B)
    return made

"""What an estimate stands on: which assumption about individuals, and what the data said of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

#: From strong to weak.
INDEPENDENT, DISPERSED, CONDITIONAL = "independent", "dispersed", "conditional"


@dataclass(frozen=True)
class Ground:
    """The `name` of a ground, a `sentence` for users, and the numbers behind the choice."""

    name: str
    sentence: str
    statistics: dict[str, Any] = field(default_factory=dict)

    def note(self) -> dict[str, Any]:
        return {"name": self.name, "sentence": self.sentence, "statistics": self.statistics}


def independent(factor: float | None = None, error: float | None = None) -> Ground:
    if factor is None:
        return Ground(INDEPENDENT, "independent movers, which was not tested")
    size = f"{factor:.2f}" + ("" if error is None else f" ± {error:.2f}")
    return Ground(INDEPENDENT, f"independent movers: the counts vary {size} times as much as those")


def dispersed(factor: float) -> Ground:
    like = f"as if groups of {factor:.3g} moved together" if factor > 1 else "as if each avoided the others"
    return Ground(
        DISPERSED,
        f"dispersed movers: the counts vary {factor:.3g} times as much as independent individuals would let "
        f"them, {like}, and this is divided out",
    )


def varying(factor: float) -> Ground:
    """Of an estimator that takes movers for independent where they are not."""
    return Ground(
        INDEPENDENT,
        f"independent movers, by assumption, though the counts vary {factor:.3g} times as much as those: "
        "this estimator does not allow for that; auto does",
        {"ignored_dispersion": factor},
    )


def regression() -> Ground:
    """Of least squares on consecutive counts."""
    return Ground(
        CONDITIONAL,
        "the conditional mean alone, E[n_t+1 | past] = P'n_t: least squares asks no more of counts",
    )


def conditional(factor: float | None) -> Ground:
    how = "" if factor is None else f", {factor:.3g} times as much on the whole"
    return Ground(
        CONDITIONAL,
        "the conditional mean alone, E[n_t+1 | past] = P'n_t: the counts vary in other ways than "
        f"independent individuals, or groups of them, would let them{how}",
    )


def untested() -> Ground:
    return Ground(
        INDEPENDENT,
        "independent movers, by assumption: without the covariance of the noise nothing can test it",
    )

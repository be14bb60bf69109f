"""What the paper claims, as questions to the table of trials.

Each is asked of both ensembles, by means, as in the paper, and by medians.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.paper.trials import Trials

BINOMIAL = ("α = 0.75", "α = 0.5", "α = 0.25")
GAUSSIAN = ("σ² = 1", "σ² = 5")
OTHER = ("Poisson 0.5", "Laplace 1", "detection 0.3 to 0.9")
#: Rates are read off from here on, plateaus and slow-downs from where least squares has settled.
RATE_FROM, LARGE_FROM = 1_000, 10_000
#: A slope within these is called 1/TK; one above FLAT a plateau.
RATE, FLAT = (-1.25, -0.75), -0.4
#: A factor up to this is little.
SLIGHTLY = 3.0
ENSEMBLES = ("paper", "regular")
STATISTICS = ("mean", "median")

#: What was measured, in words, and whether it is what the claim says.
Answer = tuple[str, bool]


@dataclass(frozen=True)
class Claim:
    """`ask` gets the trials of one ensemble and the statistic; None where they do not tell.

    `regular` is whether we expect it of regular chains, which `--quick` checks; None if it is a toss-up.
    """

    title: str
    says: str
    ask: Callable[[Trials, str], Answer | None]
    regular: bool | None = True
    ours: bool = False


@dataclass(frozen=True)
class Finding:
    """A claim with the answers by (ensemble, statistic)."""

    claim: Claim
    answers: dict[tuple[str, str], Answer]

    @property
    def verdict(self) -> str:
        held = [holds for _, holds in self.answers.values()]
        if all(held) or not any(held):
            return "yes" if held[0] else "no"
        by_ensemble = {
            e: {holds for (ensemble, _), (_, holds) in self.answers.items() if ensemble == e}
            for e in ENSEMBLES
        }
        for e, answers in by_ensemble.items():
            if answers == {True} and all(True not in other for f, other in by_ensemble.items() if f != e):
                return f"{e} ensemble only"
        sides = {f"{e} {s}": holds for (e, s), (_, holds) in self.answers.items()}
        against = [side for side, holds in sides.items() if not holds]
        if len(against) * 2 < len(sides):
            return "yes, but not by the " + ", ".join(against)
        return "only by the " + ", ".join(side for side, holds in sides.items() if holds)


def findings(trials: Trials) -> list[Finding]:
    """Every claim that the trials can tell of."""
    found = []
    for claim in CLAIMS:
        answers = {}
        for ensemble in ENSEMBLES:
            for statistic in STATISTICS:
                answer = claim.ask(trials.where(ensemble=ensemble), statistic)
                if answer is not None:
                    answers[ensemble, statistic] = answer
        if answers:
            found.append(Finding(claim, answers))
    return found


def slopes(
    trials: Trials, of: str, estimator: str, noises: Sequence[str], start: float, y: str = "error"
) -> list[float]:
    """Slopes against T K, for the noise models that there are trials of at two sizes or more."""
    found = []
    for noise in noises:
        rows = trials.where(experiment=("convergence", "other-noise"), noise=noise, estimator=estimator)
        rows = rows.between("TK", start)
        if len(rows.names("TK")) > 1:
            found.append(rows.curve("TK", y).slope(of))
    return found


def _rate(estimator: str, noises: Sequence[str], y: str = "error") -> Callable[[Trials, str], Answer | None]:
    def ask(trials: Trials, of: str) -> Answer | None:
        found = slopes(trials, of, estimator, noises, RATE_FROM, y)
        return (_shown(found), all(RATE[0] <= s <= RATE[1] for s in found)) if found else None

    return ask


def _plateau(noises: Sequence[str]) -> Callable[[Trials, str], Answer | None]:
    def ask(trials: Trials, of: str) -> Answer | None:
        found = slopes(trials, of, "cls", noises, LARGE_FROM)
        return (_shown(found), all(s > FLAT for s in found)) if found else None

    return ask


def _levels(trials: Trials, of: str) -> Answer | None:
    rows = trials.where(experiment="convergence", estimator="cls").between("TK", LARGE_FROM)
    words, ordered = [], True
    for noises in (BINOMIAL, GAUSSIAN):
        parts = [rows.where(noise=noise) for noise in noises]
        levels = [_level(part["error"], of) for part in parts if len(part)]
        words += [", ".join(f"{level:.2g}" for level in levels)] if levels else []
        ordered &= bool(np.all(np.diff(levels) > 0))
    return ("; ".join(words), ordered) if words else None


def _slow_down(trials: Trials, of: str) -> Answer | None:
    found = slopes(trials, of, "mom", ("σ² = 5",), LARGE_FROM)
    return (_shown(found), found[0] > RATE[1]) if found else None


def _population(trials: Trials, of: str) -> Answer | None:
    rows = trials.where(experiment="population")
    if not len(rows):
        return None
    ratios = []
    for estimator in ("mom", "cls"):
        curve = rows.where(estimator=estimator).curve("N", "error")
        values = getattr(curve, of)
        ratios.append(values.max() / values.min())
    return f"× {ratios[0]:.2g}, × {ratios[1]:.2g}", max(ratios) <= SLIGHTLY


def _individuals(trials: Trials, of: str) -> Answer | None:
    rows = trials.where(experiment="individuals")
    if not len(rows):
        return None
    words, powers = [], []
    for estimator in ("mom", "cls"):
        part = rows.where(estimator=estimator)
        together, alone = part.where(K=1).curve("M", "error"), part.where(N=1).curve("M", "error")
        ratio = getattr(together, of) / getattr(alone, of)
        powers.append(float(np.polyfit(np.log(alone.x), np.log(ratio), 1)[0]))
        words.append(f"{estimator} M^{powers[-1]:.2f}, × {ratio[-1]:.3g} at M = {alone.x[-1]:.0f}")
    return "; ".join(words), all(0.75 <= power <= 1.25 for power in powers)


def _limle(trials: Trials, of: str) -> Answer | None:
    found = slopes(trials, of, "limle", ("exact",), RATE_FROM)
    return (_shown(found), abs(found[0]) < 0.15) if found else None


def _naive(trials: Trials, of: str) -> Answer | None:
    rows = _exact(trials)
    if rows is None:
        return None
    a, b = (_level(rows.where(estimator=name)["error"], of) for name in ("naive", "limle"))
    return f"{a:.3f} against {b:.3f}", 0.5 < a / b < 1


def _limle_shares(trials: Trials, of: str) -> Answer | None:
    found = slopes(trials, of, "limle", ("exact",), RATE_FROM, "shares")
    return (_shown(found), found[0] < -0.6) if found else None


def _slower_shares(y: str) -> Callable[[Trials, str], Answer | None]:
    def ask(trials: Trials, of: str) -> Answer | None:
        rows = _exact(trials)
        if rows is None:
            return None
        base = getattr(rows.where(estimator="limle").curve("TK", y), of)
        ratios = []
        for name in ("mom", "cls"):
            # Sizes count alike, whatever the error at each.
            errors = getattr(rows.where(estimator=name).curve("TK", y), of)
            ratios.append(float(np.exp(np.mean(np.log(errors / base)))))
        return ", ".join(f"× {r:.3g}" for r in ratios), all(1 < r <= SLIGHTLY for r in ratios)

    return ask


_KNOWN = ("auto", "mom", "cls", "naive")


def _auto(trials: Trials, of: str) -> Answer | None:
    ratios: list[float] = []
    for experiment in trials.names("experiment"):
        rows = trials.where(experiment=experiment)
        x = {"population": "N", "individuals": "M"}.get(experiment, "TK")
        for noise in rows.names("noise"):
            part = rows.where(noise=noise)
            if experiment == "individuals":
                part = part.where(K=1)
            if not set(_KNOWN) <= set(part.names("estimator")):
                continue
            errors = {name: getattr(part.where(estimator=name).curve(x, "error"), of) for name in _KNOWN}
            best = np.minimum(np.minimum(errors["mom"], errors["cls"]), errors["naive"])
            ratios += (errors["auto"] / best).tolist()
    if not ratios:
        return None
    # A tie, as with a single individual, is no loss.
    least = int(np.sum(np.array(ratios) <= 1.05))
    words = f"{least} of {len(ratios)}; half below {np.median(ratios):.2f}, largest {max(ratios):.2f}"
    return words, least >= 0.9 * len(ratios)


def _exact(trials: Trials) -> Trials | None:
    rows = trials.where(experiment="convergence", noise="exact").between("TK", RATE_FROM)
    return rows if len(rows.where(estimator="limle")) else None


def _level(values: np.ndarray, of: str) -> float:
    return float(np.mean(values) if of == "mean" else np.median(values))


def _shown(found: Sequence[float]) -> str:
    return ", ".join(f"{slope:.2f}".replace("-", "−") for slope in found)


CLAIMS = (
    Claim("mom, perfect data: slope", "almost exactly 1/TK", _rate("mom", ("exact",))),
    Claim("cls, perfect data: slope", "almost exactly 1/TK", _rate("cls", ("exact",))),
    Claim("cls, binomial noise .75, .5, .25: slope at large TK", "flattens out", _plateau(BINOMIAL)),
    Claim("cls, Gaussian noise 1, 5: slope at large TK", "flattens out", _plateau(GAUSSIAN)),
    Claim("cls: error at large TK, binomial .75, .5, .25; Gaussian 1, 5", "higher with more noise", _levels),
    Claim("mom, binomial .75, .5, .25: slope", "keeps 1/TK", _rate("mom", BINOMIAL)),
    Claim("mom, Gaussian 1: slope", "keeps 1/TK", _rate("mom", ("σ² = 1",))),
    Claim("mom, Gaussian 5: slope at large TK", "slows down", _slow_down, regular=False),
    Claim("N from 1 to 10⁶: largest over smallest error, mom and cls", "very little effect", _population),
    Claim("M individuals counted together: error over one by one", "× M", _individuals),
    Claim("limle: slope", "is not consistent", _limle),
    Claim("naive against limle: error", "slightly better", _naive),
    Claim("limle: slope of the error of π", "finds π quickly", _limle_shares),
    Claim(
        "mom, cls: error of the fixed point of P over that of limle",
        "slightly slower",
        _slower_shares("own_shares"),
        regular=None,
    ),
    Claim(
        "mom, cls: error of π of the nearest stochastic matrix over that of limle",
        "slightly slower",
        _slower_shares("shares"),
        regular=False,
    ),
    Claim(
        "mom, Gaussian 5, rows of states with π ≥ 0.01: slope",
        "",
        _rate("mom", ("σ² = 5",), "common"),
        ours=True,
    ),
    Claim("mom, Poisson, Laplace, detection: slope", "", _rate("mom", OTHER), ours=True),
    Claim("cls, Poisson, Laplace, detection: slope at large TK", "", _plateau(OTHER), ours=True),
    Claim("auto: error over the least of mom, cls and naive, points up to 1.05", "", _auto, ours=True),
)

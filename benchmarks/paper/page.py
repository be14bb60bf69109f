"""The page of figures and claims, in Markdown, with every number taken from the trials."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

import numpy as np

from benchmarks.paper.claims import ENSEMBLES, LARGE_FROM, RATE_FROM, STATISTICS, Finding, slopes
from benchmarks.paper.trial import RARE
from benchmarks.paper.trials import Trials

CAPTIONS = {
    "figure2-binomial": "Figure 2a. Least squares (cls) levels off under binomial noise; mom does not.",
    "figure2-gaussian": "Figure 2b. The same under Gaussian noise.",
    "figure3a-population": "Figure 3a. The effect of N.",
    "figure3b-parameters": "Figure 3b. limle and naive do not converge to P.",
    "figure3c-stationary": "Figure 3c. All find the stationary distribution; mom and naive coincide.",
    "other-noise": "Ours: as figure 2, for other noise.",
    "individuals": "Ours: M individuals followed one by one, or counted together.",
}
_TRIAL = ("experiment", "ensemble", "trial", "N", "T", "K")


def page(
    trials: Trials,
    found: Sequence[Finding],
    figures: Sequence[str],
    limit: int | None = None,
    folder: str = "paper",
) -> str:
    """Markdown whose images lie in `folder` beside it; `limit` is that of a run cut to a few trials."""
    parts = [_head(trials, limit), _claims(found), _ensembles(trials), _reading(), "## Figures"]
    parts += [f"![{CAPTIONS[name]}]({folder}/{name}.png)\n\n{CAPTIONS[name]}" for name in figures]
    return "\n\n".join(part for part in parts if part) + "\n"


def wrapped(text: str) -> str:
    """Paragraphs of at most 110 columns, whatever the lengths of the numbers in them."""
    paragraphs = (" ".join(part.split()) for part in text.split("\n\n"))
    return "\n\n".join(textwrap.fill(part, 110, break_on_hyphens=False) for part in paragraphs)


def _head(trials: Trials, limit: int | None) -> str:
    number = len({tuple(trials[c][i] for c in _TRIAL) for i in range(len(trials))})
    cut = (
        ""
        if limit is None
        else f"**A first look: at most {limit} trials of each size (`--trials {limit}`).**"
    )
    return """\
<!-- Written by `make paper`; do not edit. -->
# The paper, reproduced

""" + wrapped(f"""
The experiments of Bernstein & Sheldon, *Consistently Estimating Markov Chains with Noisy Aggregate Data*
(AISTATS 2016), from one command: `make paper` runs the trials of `configs/paper`, keeps what is done when
interrupted, and writes `out/paper/trials.csv`, the figures and this page. Seeds are fixed: on the same
machine the table is the same to the last bit. `python -m pipelines.paper --beam` runs the same trials on
Apache Beam. {cut}

Chains have S = 10 states and Dirichlet rows of precision D = 0.5. Errors are entrywise mean squares. A trial
has one chain, the same at every size; there are {number:,} of trial and size. Trials of the same T × K are
taken together, as in the paper. Beside the paper's estimators stands our `auto`.""")


def _claims(found: Sequence[Finding]) -> str:
    columns = [(e, s) for e in ENSEMBLES for s in STATISTICS if any((e, s) in f.answers for f in found)]
    head = ["", "the paper says", *(f"{e} ensemble, {s}" for e, s in columns), "agree?"]
    lines = ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    for finding in found:
        cells = []
        for at in columns:
            words, holds = finding.answers.get(at, ("–", True))
            cells.append(f"{words} {'✓' if holds else '✗'}" if at in finding.answers else words)
        says = "*(ours)*" if finding.claim.ours else finding.claim.says
        lines.append("| " + " | ".join([finding.claim.title, says, *cells, finding.verdict]) + " |")
    return (
        "## Claim by claim\n\n"
        + wrapped(f"""
Slopes are of log error against log TK, from TK = {RATE_FROM:,} on, "at large TK" from {LARGE_FROM:,} on. ✓
means: a slope from −1.25 to −0.75 for 1/TK, above −0.4 for a plateau, above −0.75 for a slow-down, below −0.6
for finding π; a factor up to 3 for "little effect", from 1 to 3 for "slightly slower", between 0.5 and 1 for
"slightly better"; a power of M from 0.75 to 1.25; limle's slope within 0.15 of 0; for our `auto`, 90% of the
points of all figures.""")
        + "\n\n"
        + "\n".join(lines)
    )


def _ensembles(trials: Trials) -> str:
    rows = trials.where(experiment="convergence", estimator="mom", noise="σ² = 5")
    drawn, regular = rows.where(ensemble="paper"), rows.where(ensemble="regular")
    if any(len(part.between("TK", LARGE_FROM).names("TK")) < 2 for part in (drawn, regular)):
        return ""
    worst = np.sort(drawn.between("TK", LARGE_FROM)["error"])[::-1]
    share = worst[: max(1, len(worst) // 20)].sum() / worst.sum()
    rarest = np.unique(drawn["rarest"])

    def slope(part: Trials, y: str, start: int = RATE_FROM) -> str:
        found = [slopes(part, of, "mom", ("σ² = 5",), start, y)[0] for of in STATISTICS]
        return "{:.2f} by means and {:.2f} by medians".format(*found).replace("-", "−")

    return "## Two ensembles, means and medians, and the slow-down at σ² = 5\n\n" + wrapped(f"""
The paper draws its chains as they come. Of the {len(rarest)} drawn here, {np.sum(rarest < RARE)} have a state
with a stationary share below {RARE}; half have one below {np.median(rarest):.0e}. mom divides row i by the
estimated share of state i: where the share is smaller than its own error, which under additive noise is at
least σ / (N √TK), its square has no finite mean, and one trial may outweigh all others. At σ² = 5 and TK ≥
{LARGE_FROM:,} the worst 5% of trials carry {share:.0%} of the sum of mom's errors. A mean over such trials
says how rare the rarest state was, a median what to expect of a typical chain. The regular ensemble keeps
the draws in which every share is at least {RARE} and the second eigenvalue at most 0.95 in size: there means
and medians agree.

The paper saw mom slow down at σ² = 5 and asked whether its rate might be another one there. From TK =
{RATE_FROM:,} on, mom's slope is {slope(drawn, "error")} over the paper's ensemble, at TK ≥ {LARGE_FROM:,} it
is {slope(drawn, "error", LARGE_FROM)}; which stretch of TK looks slow or steep depends on the rare states
that were drawn, and on when each rises above the noise. In the very same trials, over the rows of states
with a share of at least {RARE}, the slope is {slope(drawn, "common")}, and over the regular ensemble
{slope(regular, "error")}. We take the slow-down for the work of
states too rare to be seen above the noise, for which the rate has not begun yet; the table above says whether
the chains drawn here show one.""")


def _reading() -> str:
    return """\
## Where we read the paper our way

- A state that was never left tells nothing of its row; every estimator then gets the mean shares as that
  row. With larger N fewer states go unseen, and mom's row of a state seen a few times is far off: this is
  why N matters in the paper's ensemble and not in the regular one.
- The paper does not say whether its trials share chains over sizes. Ours do, since a rate is that of a
  chain. We decided so after a first look at fresh chains for each size (`chains: fresh`), with which few
  trials over the paper's ensemble show slopes much flatter than −1, for mom and cls and perfect data alike.
- The noise of figures 3b and 3c is not stated; they are drawn with perfect observations.
- π of an estimate is the fixed point of its matrix, stochastic or not. For mom and perfect data that is the
  mean shares exactly, as for naive. The π of the nearest stochastic matrix, which `am.estimate` reports, is
  much farther off for mom and cls; `trials.csv` has both (`own_shares`, `shares`).
- limle lumps steps beyond the 400th, by when marginals have long settled, and takes the best of three
  starts. Where all steps have the same mean its answer depends on the start.
- For one individual (N = 1) mom and cls are the same, the frequencies of moves. For N = 100 mom's error at
  the same TK is two to three times as large and that of cls is not, so counting M together costs cls a
  factor M, and mom more.
- Where data are few and noise is strong, `auto` can do worse than naive, which wins there."""

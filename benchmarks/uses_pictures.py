"""Writes the pictures of docs/flows.md, docs/forecast.md and docs/ecological.md, from simulated data."""

import argparse
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

import aggmc_beam as am
from aggmc_beam.uses.forecast import forecast

BLUE, GREY, RED = "#2a6f97", "#9aa5b1", "#c1121f"


def moves(P, N, T, seed):
    """(counts, moves) of a population whose activity has a period of 24 steps."""
    rng = np.random.default_rng(seed)
    n, found = np.zeros((T, len(P)), int), np.zeros((T - 1, len(P), len(P)))
    n[0] = rng.multinomial(N, np.ones(len(P)) / len(P))
    activity = 1 + 0.8 * np.sin(2 * np.pi * np.arange(T - 1) / 24)
    for t in range(T - 1):
        found[t] = rng.multinomial(n[t], np.eye(len(P)) + activity[t] * (P - np.eye(len(P))))
        n[t + 1] = found[t].sum(0)
    return n, found


def flows_picture(path):
    P = 0.9 * np.eye(8) + 0.1 * np.random.default_rng(0).dirichlet(np.ones(8), 8)
    walks = [moves(P, 2000, 200, seed) for seed in range(20)]
    n, truth = walks[0]
    y = am.Gaussian(3.0).sample(np.stack([w[0] for w in walks]), np.random.default_rng(1))
    est = am.estimate(y, noise=am.Gaussian(3.0), population=2000)
    found = am.flows(y, est)
    shown = slice(100, 172)
    t = np.arange(shown.start, shown.stop)
    fig, ax = plt.subplots(figsize=(8, 3))
    ax.fill_between(t, found.lower[0, shown, 0, 1], found.upper[0, shown, 0, 1], color=BLUE, alpha=0.2, lw=0)
    ax.plot(t, found.mean[0, shown, 0, 1], color=BLUE, label="flow, with its band of 95%")
    ax.plot(t, truth[shown, 0, 1], ".", color=RED, label="true flow")
    ax.plot(t, n[shown, 0] * est.transition_matrix[0, 1], color=GREY, label="count times P")
    ax.set(xlabel="step", ylabel="moves from 0 to 1")
    finish(fig, ax, path)


def forecast_picture(path):
    P = np.array([[0.95, 0.03, 0.02], [0.03, 0.95, 0.02], [0.01, 0.04, 0.95]])
    y, _ = am.simulate(P, steps=300, population=500, realizations=20, seed=3)
    est = am.estimate(y[:, :261], population=500)
    found = forecast(est, y[0, :261], 39)
    fig, ax = plt.subplots(figsize=(8, 3))
    for j, colour in enumerate((BLUE, RED, "#588157")):
        ax.plot(np.arange(200, 300), y[0, 200:, j], color=colour, lw=1, label=f"state {j}")
        ax.plot(found.time, found.mean[:, j], color=colour, ls="--")
        ax.fill_between(found.time, found.lower[:, j], found.upper[:, j], color=colour, alpha=0.15, lw=0)
    ax.axvline(260, color=GREY)
    ax.set(xlabel="step", ylabel="count, and its forecast")
    finish(fig, ax, path)


def ecological_picture(path):
    rng = np.random.default_rng(4)
    P = np.array([[0.75, 0.15, 0.10], [0.10, 0.80, 0.10], [0.30, 0.30, 0.40]])
    before = np.array([rng.multinomial(800, s) for s in rng.dirichlet([4, 4, 1.5], 120)])
    rows = [
        [rng.multinomial(n, rng.dirichlet(60 * p)) for n, p in zip(unit, P, strict=True)] for unit in before
    ]
    after = np.sum(rows, 1)
    truth = np.sum(rows, 0) / before.sum(0)[:, None]
    found = am.cross_table(before, after)
    lower, upper = found.interval()
    x, value = np.arange(9), found.transition_matrix.ravel()
    fig, ax = plt.subplots(figsize=(8, 3))
    ax.errorbar(
        x, value, [value - lower.ravel(), upper.ravel() - value], fmt="o", color=BLUE, label="estimate"
    )
    ax.plot(x, truth.ravel(), "_", ms=14, mew=2, color=RED, label="truth")
    ax.set_xticks(x, [f"{i} to {j}" for i in "abc" for j in "xyz"])
    ax.set(ylabel="part of the row")
    finish(fig, ax, path)


def finish(fig, ax, path):
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(frameon=False, fontsize=8, loc="upper right")
    fig.tight_layout()
    fig.savefig(path, dpi=110)
    print(path)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--docs", type=Path, default=Path("docs"))
    folder = parser.parse_args().docs
    flows_picture(folder / "flows.png")
    forecast_picture(folder / "forecast.png")
    ecological_picture(folder / "ecological.png")


if __name__ == "__main__":
    main()

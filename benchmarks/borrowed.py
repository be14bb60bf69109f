"""What cells of a chain and groups of a run gain by sharing, and what it costs where they have nothing in common.

    python benchmarks/borrowed.py                     simulated hours and regions
    python benchmarks/borrowed.py --data DIR          and bicycles: areas by hour, stations by hour, in day types
    python benchmarks/borrowed.py --quick             few seeds

The error is `sqrt(sum_i pi_i sum_j (estimate_ij - truth_ij)^2)`, mean over hours or regions; *separate* is each by
itself (`pooling: none`), *pooled* one matrix for all. Coverage is of intervals at 95%.
"""

import argparse
import os
import time
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
import polars as pl
from realsets import bikes, first_day

import aggmc_beam as am

PERIOD = 24
NOISES = {"exact": am.Exact(), "alpha .5": am.Binomial(0.5)}
#: Realizations and steps of counts by hour.
SHAPES = {"40 runs of 2 days": (40, 48), "one run of 8 weeks": (1, 24 * 56)}
#: How far apart the matrices are: precision of the Dirichlet rows about a common matrix; None is the same, 0 any.
KINDS = {"not at all": None, "a little": 200, "much": 20, "wholly": 0}
#: The town of whose stations each is a state; the rest is one more.
TOWN = "San Francisco"


def matrices(kind, number, S, rng):
    base = 0.6 * np.eye(S) + 0.4 * rng.dirichlet(np.ones(S), S)
    precision = KINDS[kind]
    if precision is None:
        return np.tile(base, (number, 1, 1))
    if precision:
        return np.array([[rng.dirichlet(precision * row + 1e-3) for row in base] for _ in range(number)])
    return 0.3 * np.eye(S) + 0.7 * rng.dirichlet(np.ones(S), (number, S))


def busy(number, S, rng):
    """One matrix, of whose moves more happen in some hours."""
    base = 0.6 * np.eye(S) + 0.4 * rng.dirichlet(np.ones(S), S)
    rate = 1 + 0.8 * np.sin(2 * np.pi * np.arange(number) / number)
    return np.eye(S) + rate[:, None, None] * (base - np.eye(S))


def settled(P):
    """Mean shares in each hour of a cycle of matrices, from a hundred rounds."""
    mu, found = np.full(P.shape[1], 1 / P.shape[1]), np.zeros(P.shape[:2])
    for t in range(100 * len(P)):
        found[t % len(P)] = mu
        mu = mu @ P[t % len(P)]
    return found


def walk(P, K, T, N, rng):
    """Counts [K, T, S] of N individuals who move by P[t mod C]."""
    n = rng.multinomial(N, settled(P)[0], size=K)
    y = np.zeros((K, T, P.shape[1]), int)
    for t in range(T):
        y[:, t] = n
        n = sum(rng.multinomial(n[:, i], P[t % len(P), i]) for i in range(P.shape[1]))
    return y


def error(found, truth, shares):
    return float(np.sqrt((shares[..., None] * (np.nan_to_num(found) - truth) ** 2).sum((-1, -2))).mean())


class Line:
    """One line of a table, over seeds."""

    def __init__(self, name):
        self.name, self.errors, self.inside, self.own, self.borrowed = name, [], [], [], []

    def add(self, shared, others, truth, shares):
        """`shared`: estimates; `others`: matrices."""
        P = np.stack([e.transition_matrix for e in shared])
        lower, upper = (np.stack(b) for b in zip(*(e.interval() for e in shared), strict=True))
        self.errors.append([error(M, truth, shares) for M in (P, *others)])
        for values, point in ((self.inside, truth), (self.own, P)):
            known = np.isfinite(lower)
            values.append(((point >= lower - 1e-9) & (point <= upper + 1e-9))[known].mean())
        self.borrowed.append(np.mean([e.diagnostics.get("borrowed", {}).get("share", 0) for e in shared]))

    def show(self):
        ours, *others = np.mean(self.errors, 0)
        told = [f"{ours:.4f}", *(f"{o:.4f}" for o in others)]
        told += [f"{ours / others[0]:.2f}", f"{ours / min(others):.2f}"]
        told += [f"{np.mean(v):.2f}" for v in (self.inside, self.own, self.borrowed)]
        print("| " + " | ".join([self.name, *told]) + " |", flush=True)


HEAD = "| shared | separate | pooled | over separate | over the better | coverage | own | borrowed |"


def head(name):
    print(f"\n| {name} {HEAD}\n" + "|" + " --- |" * (HEAD.count("|")))


def show_hours(seeds, S=4, N=300):
    head("hours, S = 4, N = 300")
    for shape, (K, T) in SHAPES.items():
        for noise, model in NOISES.items():
            for kind in (*KINDS, "in how much moves"):
                line = Line(f"differ {kind}; {shape}, {noise}")
                for seed in range(seeds):
                    rng = np.random.default_rng([seed, K])
                    P = matrices(kind, PERIOD, S, rng) if kind in KINDS else busy(PERIOD, S, rng)
                    y = model.sample(walk(P, K, T, N, rng), rng)
                    shared, separate = (
                        am.estimate(y, noise=model, population=N, chain=am.Cycle(PERIOD), pooling=pooling)
                        for pooling in ("cells", "none")
                    )
                    pooled = np.tile(shared.pooled.transition_matrix, (PERIOD, 1, 1))
                    line.add(shared, (separate.transition_matrix, pooled), P, settled(P))
                line.show()


def show_regions(seeds, G=20, K=5, T=50, S=3, N=100):
    names = [str(s) for s in range(S)]
    head(f"{G} regions, S = {S}, N = {N}, K = {K}, T = {T}")
    for noise, model in NOISES.items():
        for kind in KINDS:
            line = Line(f"differ {kind}; {noise}")
            for seed in range(seeds):
                rng = np.random.default_rng([seed, G])
                P = matrices(kind, G, S, rng)
                shares, rows, all_of_it = [], [], []
                for g in range(G):
                    shares.append(settled(P[g][None])[0])
                    y = model.sample(walk(P[g][None], K, T, N, rng), rng)
                    all_of_it.append(y)
                    index = np.indices((K, T)).reshape(2, -1)
                    columns = {"region": [f"r{g:02}"] * K * T, "realization": index[0], "time": index[1]}
                    rows.append(pl.DataFrame(columns | dict(zip(names, y.reshape(-1, S).T, strict=True))))
                shared, separate = (
                    am.estimate(
                        pl.concat(rows), names, noise=model, population=N, group_by="region", pooling=pooling
                    ).estimates
                    for pooling in ("groups", "none")
                )
                pooled = am.estimate(np.concatenate(all_of_it), noise=model, population=N)
                each = np.stack([e.transition_matrix for e in separate])
                line.add(shared, (each, np.tile(pooled.transition_matrix, (G, 1, 1))), P, np.stack(shares))
            line.show()


def moves_of(at, S, cells):
    """[C, S, S]: how many went from i to j in the steps of each cell, -1 being none; and shares [C, S] of those who
    were in i."""
    F = np.zeros((cells.max() + 1, S, S))
    for t, c in enumerate(cells):
        if c >= 0:
            np.add.at(F[c], (at[:, t], at[:, t + 1]), 1)
    shares = F.sum(2) / F.sum((1, 2))[:, None]
    rows = np.maximum(F.sum(2, keepdims=True), 1)
    return np.where(F.sum(2, keepdims=True) > 0, F / rows, np.eye(S)), shares


def show_bikes(folder):
    print(
        "\n| bicycles | of hours | one matrix | identity | over identity | coverage | own | borrowed | CPU s |"
    )
    print("|" + " --- |" * 9)
    for by in ("area", TOWN):
        at, states = bikes(folder, by)
        S, N, hours = len(states), len(at), at.shape[1] - 1
        n = np.stack([(at[:, :-1] == s).sum(0) for s in range(S)], 1)
        days = n.reshape(-1, PERIOD, S)
        chains = {"days, hours": (days, am.Cycle(PERIOD)), "one series, hours": (n[None], am.Cycle(PERIOD))}
        if by == "area":
            chains["one series, hours of a week"] = n[None], am.Cycle(7 * PERIOD)
            chains["one series, hours of day types"] = n[None], am.Cycle.day_types(first=first_day(folder))
        for name, (y, chain) in chains.items():
            began = time.process_time()
            found = am.estimate(y, population=N, chain=chain)
            seconds = time.process_time() - began
            cells = chain.cells(np.arange(hours))
            if y.shape[0] > 1:
                cells = np.where(cells == PERIOD - 1, -1, cells)  # pairs do not cross midnight there
            truth, shares = moves_of(at, S, cells)
            line = Line("")
            one = np.tile(found.pooled.transition_matrix, (len(truth), 1, 1))
            line.add(found, (one, np.tile(np.eye(S), (len(truth), 1, 1))), truth, shares)
            ours, pooled, identity = line.errors[0]
            told = [f"{ours:.4f}", f"{pooled:.4f}", f"{identity:.4f}", f"{ours / identity:.2f}"]
            told += [f"{v[0]:.2f}" for v in (line.inside, line.own, line.borrowed)] + [f"{seconds:.1f}"]
            print("| " + " | ".join([f"{by}, S = {S}; {name}", *told]) + " |", flush=True)


def show(folder, quick):
    seeds = 2 if quick else 6
    show_hours(seeds)
    show_regions(seeds)
    if folder is not None and (folder / "bikes").exists():
        show_bikes(folder / "bikes")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder of published data")
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    show(options.data, options.quick)


if __name__ == "__main__":
    main()

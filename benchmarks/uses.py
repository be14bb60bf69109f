"""What users do with P, measured: flows, forecasts, tables by unit, derived quantities, alarms.

    python benchmarks/uses.py                        simulated data alone
    python benchmarks/uses.py --data DIR             and real data: bikes/, elections/, labour/

Matrices of hours for bikes are made here from the pooled estimate: one number per hour, how much moves then,
and one step of expected flows; weeks that are forecast are never among those they are made of.
"""

import argparse
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl

import aggmc_beam as am
from aggmc_beam.uses.margins import fit_margins

PERIOD = 24


def bikes(folder):
    """(counts [days, 24, S], moves [hours, S, S]) of bicycles between areas at full hours, local time."""
    trips = pl.read_csv(folder / "trips.csv").sort("bike", "end")
    stations = pl.read_csv(folder / "stations.csv")
    area = dict(stations.select("station", "area").iter_rows())
    S = max(area.values()) + 1
    start = int(trips["start"].min())
    start += (8 * 3600 - start) % 86400
    days = (int(trips["end"].quantile(0.999)) - start) // 86400
    grid = start + 3600 * np.arange(days * PERIOD + 1)
    at = []
    for _, g in trips.group_by("bike", maintain_order=True):
        last = np.searchsorted(g["end"].to_numpy(), grid, "right") - 1
        to = np.array([area.get(s, S - 1) for s in g["to_station"]])
        at.append(np.where(last >= 0, to[np.maximum(last, 0)], area.get(g["from_station"][0], S - 1)))
    at = np.array(at)
    moves = np.zeros((len(grid) - 1, S, S))
    for t in range(len(moves)):
        np.add.at(moves[t], (at[:, t], at[:, t + 1]), 1)
    return moves.sum(2).reshape(days, PERIOD, S), moves


def hourly(counts):
    """A cycle of hourly matrices from days of counts, standing in for an estimate that borrows strength."""
    _days, _, S = counts.shape
    pooled = am.estimate(counts, population=counts[0, 0].sum())
    cycle = am.estimate(counts, population=counts[0, 0].sum(), chain=am.Cycle(PERIOD))
    P, n = pooled.transition_matrix, counts.reshape(-1, S)
    before, after = n[:-1], n[1:]
    hour = np.arange(len(before)) % PERIOD
    moved = [
        ((after - before)[hour == h].var(0) / 2 / np.maximum(before[hour == h].mean(0), 1e-9)).mean()
        for h in range(PERIOD)
    ]
    scale = np.array(moved) / np.mean(moved)
    M = np.clip(np.eye(S) + scale[:, None, None] * (P - np.eye(S)), 1e-5, 1)
    M /= M.sum(2, keepdims=True)
    found = fit_margins(before[:, :, None] * M[hour], before, after)
    sums = np.array([found[hour == h].sum(0) for h in range(PERIOD)])
    M = sums / sums.sum(2, keepdims=True)
    cells = [
        replace(
            cycle[min(h, len(cycle) - 1)],
            cell=h,
            transition_matrix=M[h],
            standard_error=np.full((S, S), 0.01),
        )
        for h in range(PERIOD)
    ]
    return pooled, replace(cycle, items=tuple(cells), pooled=pooled, skipped={})


def flow_scores(found, moves):
    off = ~np.eye(moves.shape[-1], dtype=bool)
    a, b = found.mean[:, :, off], moves[:, :, off]
    inside = (found.lower[:, :, off] <= b) & (b <= found.upper[:, :, off])
    total = np.corrcoef(a.sum(2).ravel(), b.sum(2).ravel())[0, 1]
    return np.corrcoef(a.ravel(), b.ravel())[0, 1], total, inside.mean()


def show_bikes(folder):
    counts, moves = bikes(folder)
    days, _, S = counts.shape
    true = moves.reshape(days, PERIOD, S, S)[:, :-1]
    pooled, cycle = hourly(counts)
    print("\nBikes, flows off the diagonal (goals: >= .50; >= .85; .85-.98)")
    print(f"{'matrix':<22}{'correlation':>12}{'of totals':>12}{'coverage':>12}")
    for name, est in (("pooled estimate", pooled), ("matrices of hours", cycle)):
        a, b, c = flow_scores(am.flows(counts, est), true)
        print(f"{name:<22}{a:>12.3f}{b:>12.3f}{c:>12.3f}", flush=True)
    half = days // 2
    _, earlier = hourly(counts[:half])
    series = counts.reshape(-1, S)
    found = am.evaluate(series, earlier, (1, 3, 6), start=half * PERIOD, period=PERIOD)
    print("\nBikes, matrices of earlier weeks (goals: RMSE / persistence <= .92, .82, .75; coverage .90-.98)")
    print(found)
    print("estimate / persistence:", *(f"{found.ratio('estimate', h):.3f}" for h in (1, 3, 6)), flush=True)


def show_labour(folder, people=60_000):
    joint = pl.read_csv(folder / "flows.csv").drop_nulls().drop("month").to_numpy().reshape(-1, 3, 3)
    stocks = people * joint.sum(2) / joint.sum((1, 2))[:, None]
    half = len(stocks) // 2
    est = am.estimate(stocks[:half], population=people)
    found = am.evaluate(stocks, est, (1, 12), start=half)
    print("\nLabour force, matrix of the first half (goal: RMSE / persistence <= 1.02; bands cover)")
    print(found)
    print("estimate / persistence:", *(f"{found.ratio('estimate', h):.3f}" for h in (1, 12)), flush=True)


def districts(folder):
    """(before, after, true table) of each district, choices below 3% together."""
    votes, truth = (pl.read_csv(folder / f"NZ_2020{end}.csv") for end in ("", "_truth"))
    for d in votes["district"].unique().sort():
        sides = []
        for side in ("first", "second"):
            one = votes.filter((pl.col("district") == d) & (pl.col("vote") == side))
            sides.append(
                one.pivot("choice", index="station", values="count", aggregate_function="sum").fill_null(0)
            )
        both = sorted(set(sides[0]["station"]) & set(sides[1]["station"]))
        frames = [s.filter(pl.col("station").is_in(both)).sort("station").drop("station") for s in sides]
        names = [{c: i for i, c in enumerate(f.columns)} for f in frames]
        A, B = (f.to_numpy().astype(float) for f in frames)
        X = np.zeros((A.shape[1], B.shape[1]))
        for p, q, n in truth.filter(pl.col("district") == d).select("first", "second", "votes").iter_rows():
            if p in names[0] and q in names[1]:
                X[names[0][p], names[1][q]] += n
        keep = [M.sum(0) / M.sum() > 0.03 for M in (A, B)]
        A, B = (np.column_stack([M[:, k], M[:, ~k].sum(1)]) for M, k in zip((A, B), keep, strict=True))
        X = np.vstack([X[keep[0]], X[~keep[0]].sum(0)])
        X = np.column_stack([X[:, keep[1]], X[:, ~keep[1]].sum(1)])
        ok = (A.sum(1) > 30) & (np.abs(A.sum(1) - B.sum(1)) < 1e-6)
        if ok.sum() >= 10:
            yield A[ok], B[ok], X


def constrained_least_squares(A, B, weight):
    from scipy.optimize import nnls

    R, C = A.shape[1], B.shape[1]
    root = np.sqrt(weight)
    M = np.kron(A * root[:, None], np.eye(C))
    big = 1e3 * np.abs(M).max()
    left = np.linalg.qr(
        np.column_stack(
            [
                np.vstack([M, big * np.kron(np.eye(R), np.ones(C))]),
                np.r_[(B * root[:, None]).ravel(), np.full(R, big)],
            ]
        ),
        mode="r",
    )
    P = nnls(left[:, :-1], left[:, -1], maxiter=10_000)[0].reshape(R, C)
    return P / P.sum(1, keepdims=True)


def show_elections(folder):
    rivals = {"of counts": 0, "of counts / root of size": 1, "of shares": 2}
    wrong, votes, better, inside, small = 0.0, 0.0, [], [], []
    began = time.perf_counter()
    for A, B, X in districts(folder):
        found = am.cross_table(A, B)
        total = X.sum(1, keepdims=True)
        own = np.abs(found.transition_matrix * total - X).sum()
        rival = [
            np.abs(constrained_least_squares(A, B, A.sum(1) ** -float(p)) * total - X).sum()
            for p in rivals.values()
        ]
        wrong, votes = wrong + own, votes + X.sum()
        better.append([own < r for r in rival])
        lower, upper = found.interval()
        held = (lower <= X / total) & (X / total <= upper)
        inside.append(held.mean())
        rare = total[:, 0] < 0.1 * X.sum()
        small += held[rare].ravel().tolist()
    print(f"\nElections NZ 2020, {len(better)} districts, {time.perf_counter() - began:.0f} s")
    print(f"error index {50 * wrong / votes:.2f} (goal <= 11.5)")
    for name, part in zip(rivals, np.mean(better, 0), strict=True):
        print(
            f"better than row-constrained least squares {name}: {100 * part:.0f}% of districts (goal >= 75%)"
        )
    print(
        f"intervals of 95% cover {np.mean(inside):.3f}, of rows below a tenth {np.mean(small):.3f}",
        flush=True,
    )


def show_many_units():
    rng = np.random.default_rng(0)
    before = rng.multinomial(600, rng.dirichlet(np.ones(8), 46_000)[:, None, :])[:, 0]
    after = rng.multinomial(before, rng.dirichlet(np.ones(10), 8)).sum(1)
    began = time.perf_counter()
    found = am.cross_table(before, after)
    seconds = time.perf_counter() - began
    off = max(np.abs(found.units.sum(2) - before).max(), np.abs(found.units.sum(1) - after).max())
    print(
        f"\n46,000 units x 8 x 10: {seconds:.1f} s (goal <= 30); tables add up within {off:.1g}", flush=True
    )


def show_derived(runs=40):
    """Coverage where P is estimated from counts of independent movers."""
    P = np.array([[0.8, 0.15, 0.05], [0.1, 0.8, 0.1], [0.05, 0.25, 0.7]])
    asked = {
        "stationary shares": lambda f: f.stationary(),
        "P^5": lambda f: f.power(5),
        "mean stay": lambda f: f.mean_stay(),
        "hitting times": lambda f: f.hitting_times(0),
        "return times": lambda f: f.return_times(),
        "mixing time": lambda f: f.mixing_time(),
        "flux": lambda f: f.flux(),
        "generator": lambda f: f.generator(),
    }
    from aggmc_beam.uses.covariance import row_covariance
    from aggmc_beam.uses.follows import Follows

    inside = {name: [] for name in asked}
    for seed in range(runs):
        y, _ = am.simulate(P, steps=200, realizations=40, population=200, seed=seed)
        f = am.follows(am.estimate(y, population=200))
        truth = Follows(replace(f.estimate, transition_matrix=P), row_covariance(np.zeros((3, 3))), 0.95)
        for name, ask in asked.items():
            q, right = ask(f), ask(truth).value
            inside[name].append(((q.lower <= right) & (right <= q.upper))[q.standard_error > 0].mean())
    print(f"\nDerived quantities, {runs} simulations, intervals of 95% (goal .90-.98)")
    print(", ".join(f"{name} {np.mean(values):.3f}" for name, values in inside.items()), flush=True)


def show_alarms(rate=0.01, runs=60):
    P = 0.8 * np.eye(4) + 0.05
    false = []
    for seed in range(8):
        y, _ = am.simulate(P, steps=5000, population=1000, seed=seed)
        false.append(am.alarms(y[0], am.estimate(y[:, :2000]), rate=rate).raised[200:].mean())
    print(f"\nAlarms: false-alarm rate {np.mean(false):.4f} for {rate} (goal within 20%)")
    for population in (4000, 8000, 16_000):
        found = 0
        for seed in range(runs):
            y, _ = am.simulate(P, steps=600, population=population, seed=100 + seed)
            est = am.estimate(y[:, :400], estimator="cls")
            flow = np.round(y[0, 499, 0] * 0.05)  # all who move from 0 to 1 in an average hour, once more
            y[0, 500:, 0] -= flow
            y[0, 500:, 1] += flow
            found += bool(am.alarms(y[0], est, rate=rate).raised[500])
        share = 100 * found / runs
        print(
            f"a flow of {population // 80} that doubles in one hour: found in {share:.0f}% (goal 90%)",
            flush=True,
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder that holds bikes/, elections/ and labour/")
    options = parser.parse_args()
    show_many_units()
    show_derived()
    show_alarms()
    if options.data is not None:
        shown = (("bikes", show_bikes), ("labour", show_labour), ("elections", show_elections))
        for name, show in shown:
            if (options.data / name).is_dir():
                show(options.data / name)
            else:
                print(f"\n{name}: there is no folder {options.data / name}")


if __name__ == "__main__":
    main()

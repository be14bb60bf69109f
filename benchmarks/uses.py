"""What users do with P, measured: flows, forecasts, tables by unit, derived quantities, alarms.

    python benchmarks/uses.py                        simulated data alone
    python benchmarks/uses.py --data DIR             and published data: bikes/, elections/, labour/
    python benchmarks/uses.py --data DIR --quick     few districts and runs; as `benchmarks/real.py --quick` does
    python benchmarks/uses.py --data DIR --docs docs/uses.md      what is printed, as a page

Matrices of hours are those of `am.estimate(chain=am.Cycle(24))`; weeks that are forecast are never among those
that they are made of.
"""

import argparse
import contextlib
import io
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
from realsets import bikes, elections, labour

import aggmc_beam as am

PERIOD = 24
HEAD = """# What flows, forecasts and tables are worth

Printed by `python benchmarks/uses.py --data DIR --docs docs/uses.md`. DIR holds published data: places of
shared bicycles by the hour (seven areas, whose true flows are known), monthly stocks of the labour force, and
two votes on one ballot at the polling places of New Zealand in 2020, whose true tables are known. Matrices are
made of earlier weeks or months than those that are forecast. Root mean square errors are in people.

Alarms: a flow must stand out from the moves of everybody else in that hour, so what can be found at all depends
on its size; beside each share is that of the best test there is for two states that are known beforehand.
"""
#: Districts of an election that one is taken of in the quick form: twelve.
EVERY_QUICK = 6


def areas(folder):
    """(counts [days, 24, S], moves [hours, S, S]) of bicycles between areas at full hours, local time."""
    at, states = bikes(folder, "area")
    S, hours = len(states), at.shape[1] - 1
    moves = np.zeros((hours, S, S))
    for t in range(hours):
        np.add.at(moves[t], (at[:, t], at[:, t + 1]), 1)
    return moves.sum(2).reshape(-1, PERIOD, S), moves


def flow_scores(found, moves):
    off = ~np.eye(moves.shape[-1], dtype=bool)
    a, b = found.mean[:, :, off], moves[:, :, off]
    inside = (found.lower[:, :, off] <= b) & (b <= found.upper[:, :, off])
    total = np.corrcoef(a.sum(2).ravel(), b.sum(2).ravel())[0, 1]
    return np.corrcoef(a.ravel(), b.ravel())[0, 1], total, inside.mean()


def show_bikes(folder):
    counts, moves = areas(folder)
    days, _, S = counts.shape
    N, series, true = counts[0, 0].sum(), counts.reshape(1, -1, S), moves.reshape(days, PERIOD, S, S)[:, :-1]
    print(
        "\nBikes, flows off the diagonal: correlation with the true ones, that of totals, coverage of 95% bands"
    )
    print(f"{'estimate':<36}{'correlation':>12}{'of totals':>12}{'coverage':>12}")
    shapes = {"days": counts, "one series": series}
    for name, y in shapes.items():
        for chain in ("stationary", am.Cycle(PERIOD)):
            est = am.estimate(y, population=N, chain=chain)
            shown = f"{name}, {'one matrix' if chain == 'stationary' else 'matrices of hours'}"
            a, b, c = flow_scores(am.flows(counts, est), true)
            print(f"{shown:<36}{a:>12.3f}{b:>12.3f}{c:>12.3f}", flush=True)
    half = days // 2
    for name, y in (("days", counts[:half]), ("one series", series[:, : half * PERIOD])):
        earlier = am.estimate(y, population=N, chain=am.Cycle(PERIOD))
        found = am.evaluate(series[0], earlier, (1, 3, 6), start=half * PERIOD, period=PERIOD)
        print(f"\nBikes, matrices of hours from {name} of earlier weeks")
        print(found)
        print("estimate / persistence:", *(f"{found.ratio('estimate', h):.3f}" for h in (1, 3, 6)))
        inside = last_alone(earlier, series[0], half * PERIOD)
        print("coverage from the last record alone:", *(f"{inside[h]:.3f}" for h in (1, 3, 6)), flush=True)


def last_alone(estimate, y, start, every=37):
    """How often bands of forecasts from a single record hold what comes, by horizon."""
    inside = {1: [], 3: [], 6: []}
    for t in range(start, len(y) - 6, every):
        found = estimate.forecast(y[t], 6, time=t)
        for h, held in inside.items():
            held.append(((found.lower[h - 1] <= y[t + h]) & (y[t + h] <= found.upper[h - 1])).mean())
    return {h: np.mean(held) for h, held in inside.items()}


def show_labour(folder, people=60_000):
    stocks = labour(folder / "flows.csv", people).y[0]
    half = len(stocks) // 2
    est = am.estimate(stocks[:half], population=people)
    found = am.evaluate(stocks, est, (1, 12), start=half)
    print("\nLabour force, matrix of the first half")
    print(found)
    print("estimate / persistence:", *(f"{found.ratio('estimate', h):.3f}" for h in (1, 12)), flush=True)


def districts(folder, every):
    """(before, after, true table) of districts, choices below 3% together."""
    for case in elections(folder, every):
        a = int(case.judged.any(1).sum())
        yield (
            case.y[:, 0, :a],
            case.y[:, 1, a:],
            case.truth[:a, a:] * case.shares[:a, None] * case.y[:, 0].sum(),
        )


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


def show_elections(folder, every):
    rivals = {"of counts": 0, "of counts / root of size": 1, "of shares": 2}
    wrong, votes, better, inside, small = 0.0, 0.0, [], [], []
    began = time.perf_counter()
    for A, B, X in districts(folder, every):
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
    print(f"error index {50 * wrong / votes:.2f}")
    for name, part in zip(rivals, np.mean(better, 0), strict=True):
        print(f"better than row-constrained least squares {name}: {100 * part:.0f}% of districts")
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
    print(f"\nTables of 46,000 units x 8 x 10\n{seconds:.1f} s; they add up within {off:.1g}", flush=True)


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
    print(f"\nDerived quantities, {runs} simulations, coverage of intervals of 95%")
    print(", ".join(f"{name} {np.mean(values):.3f}" for name, values in inside.items()), flush=True)


def best_power(P, each, flow, rate):
    """Of a two-sided test for members who move from state 0 to 1, where each state has as many."""
    from scipy.special import ndtr, ndtri

    V = each * (np.diag(P.sum(0)) - P.T @ P)
    difference = np.array([-1.0, 1.0, 0, 0])
    z = 2 * flow / np.sqrt(difference @ V @ difference)
    limit = ndtri(1 - rate / 2)
    return ndtr(z - limit) + ndtr(-z - limit)


def show_alarms(rate=0.01, runs=60):
    P = 0.8 * np.eye(4) + 0.05
    false = []
    for seed in range(8):
        y, _ = am.simulate(P, steps=5000, population=1000, seed=seed)
        false.append(am.alarms(y[0], am.estimate(y[:, :2000]), rate=rate).raised[200:].mean())
    print(f"\nAlarms: false-alarm rate {np.mean(false):.4f} at a rate of {rate}")
    for population in (4000, 8000, 16_000):
        found = 0
        for seed in range(runs):
            y, _ = am.simulate(P, steps=600, population=population, seed=100 + seed)
            est = am.estimate(y[:, :400], estimator="cls")
            flow = np.round(y[0, 499, 0] * 0.05)  # all who move from 0 to 1 in an average hour, once more
            y[0, 500:, 0] -= flow
            y[0, 500:, 1] += flow
            found += bool(am.alarms(y[0], est, rate=rate).raised[500])
        share, best = 100 * found / runs, 100 * best_power(P, population / 4, population // 80, rate)
        print(
            f"a flow of {population // 80} that doubles in one hour: found in {share:.0f}% "
            f"({best:.0f}% by a test that knows the two states)",
            flush=True,
        )


def show(folder=None, quick=False):
    """All of it, as far as there are data."""
    show_many_units()
    show_derived(runs=12 if quick else 40)
    show_alarms(runs=20 if quick else 60)
    if folder is None:
        return
    every = EVERY_QUICK if quick else 1
    kinds = {"bikes": show_bikes, "labour": show_labour, "elections": lambda f: show_elections(f, every)}
    for name, shown in kinds.items():
        if (folder / name).is_dir():
            shown(folder / name)
        else:
            print(f"\n{name}: there is no folder {folder / name}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder that holds bikes/, elections/ and labour/")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--docs", type=Path, help="page to write")
    options = parser.parse_args()
    if options.docs is None:
        show(options.data, options.quick)
        return
    told = io.StringIO()
    with contextlib.redirect_stdout(told):
        show(options.data, options.quick)
    options.docs.write_text(HEAD + "\n" + page(told.getvalue()), encoding="utf-8")
    print(options.docs)


def page(text):
    """Each part of what was printed as a block below its first line."""
    parts = [part.strip().split("\n", 1) for part in text.strip().split("\n\n")]
    return "\n".join(
        f"## {part[0]}\n" + (f"\n```\n{part[1]}\n```\n" if len(part) > 1 else "") for part in parts
    )


if __name__ == "__main__":
    main()

"""How often the tests of `aggmc_beam.fit.hypotheses` reject at the 5% level: `python benchmarks/size.py`.

Size: the hypothesis holds. Power: rows are mixed with 10% identity, or shares drift by 2.5%. Over
regular chains of two precisions, N = 100. Standard error of a share near 5% with 400 runs: 1.1 points.
"""

from __future__ import annotations

import argparse

import numpy as np

import aggmc_beam as am

NOISES = {"exact": am.Exact(), "binomial .5": am.Binomial(0.5), "gaussian s2=5": am.Gaussian(5**0.5)}
CHAINS = 8


def p_values(S: int, K: int, T: int, runs: int, noise: am.Noise, effect: float) -> dict[str, list[float]]:
    rng = np.random.default_rng([S, K, T, int(100 * effect)])
    found: dict[str, list[float]] = {"zero_order": [], "stationarity": [], "equality": []}
    for run in range(runs):
        if run % max(runs // CHAINS, 1) == 0:
            precision = (2.0, 0.5)[len(found["equality"]) % 2]
            truth = am.simulate(states=S, precision=precision, ensemble="regular", steps=2, seed=rng).truth
            P, mu = truth.transition_matrix, truth.stationary
        stay = np.eye(S)
        drift = np.linspace(0, effect / 4, T - 1)[:, None, None]
        chains = {
            "memoryless": (1 - effect) * np.tile(mu, (S, 1)) + effect * stay,
            "drifting": (1 - drift) * P + drift * stay[np.argmin(mu)],
            "one": P,
            "other": (1 - effect) * P + effect * stay,
        }
        y = {
            name: am.simulate(chain, steps=T, realizations=K, noise=noise, seed=rng).counts
            for name, chain in chains.items()
        }
        found["zero_order"].append(am.zero_order(y["memoryless"], noise, 100).p_value)
        found["stationarity"].append(am.stationarity(y["drifting"], noise, 100).p_value)
        found["equality"].append(am.equality(y["one"], y["other"], noise, 100).p_value)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=400)
    parser.add_argument("--states", type=int, nargs="+", default=[3, 5, 10])
    arguments = parser.parse_args()
    print("| S | K | T | noise | effect | zero_order | stationarity | equality |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for S in arguments.states:
        for K, T in ((50, 50), (1, 5000)):
            for name, noise in NOISES.items():
                for effect in (0.0, 0.1):
                    runs = arguments.runs if effect == 0 else max(arguments.runs // 4, 1)
                    found = p_values(S, K, T, runs, noise, effect)
                    shares = [f"{100 * np.mean(np.array(p) < 0.05):.1f}%" for p in found.values()]
                    print(
                        "|",
                        " | ".join([f"{S}", f"{K}", f"{T}", name, f"{effect:g}", *shares]),
                        "|",
                        flush=True,
                    )


if __name__ == "__main__":
    main()

"""What a stream keeps and writes as time goes on: `python benchmarks/stream_state.py`, a few minutes.

Records of S = 100 states come in the order of time, in bundles of 100 and of 1,000, and are refreshed as often as
a feed of 11,574 records a second is by `refresh: 60s`, but at least twice. State is written by the runner of
`soak/stream.py`, as bytes.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from unittest.mock import patch

import numpy as np

sys.path.insert(0, str(Path(__file__).parent / "soak"))
import stream as soak

#: Steps and realizations.
SIZES = ((24, 1000), (1440, 60), (4096, 40))
EVERY = 60 * 11_574


def measure(S: int, T: int, K: int, bundle: int) -> dict[str, float]:
    from apache_beam.utils.timestamp import Timestamp

    from aggmc_beam.beam import EstimateTransitions, Stream
    from aggmc_beam.beam.timing import Timing
    from aggmc_beam.records import Record

    plan = EstimateTransitions([f"s{i}" for i in range(S)], population=10_000, stream=Stream()).plan
    rng, at = np.random.default_rng(1), Timestamp(micros=0)
    with patch.object(soak, "BUNDLE", bundle):
        runner = soak.Runner(plan, Timing.of(plan))
        cpu = time.process_time()
        for t in range(T):
            for k, row in enumerate(rng.multinomial(10_000, np.full(S, 1 / S), K).astype(float)):
                runner.take(Record(f"area-{k}", t, row), at)
            if (t + 1) * K % EVERY < K or t + 1 == T // 2:
                runner.refresh()
        runner.refresh()
        cpu = time.process_time() - cpu
    written = [state.written / (K * T) for state in runner.states]
    return {
        "T": T,
        "bundle": bundle,
        "records": K * T,
        "largest": max(state.largest for state in runner.states),
        "group": sum(state.size for state in runner.kept),
        "realization": runner.state.size / K,
        "realizations written": written[0],
        "sums written": sum(written[1:]),
        "cpu": cpu / (K * T) * 1e6,
    }


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--states", type=int, default=100)
    S = options.parse_args().states
    print(f"S = {S}\n")
    print(
        "| steps | bundle | records | largest value, kB | group, MB | realization, B | written per record: "
        "realizations, B | sums, B | processor µs |"
    )
    print("| ---: " * 9 + "|")
    for T, K in SIZES:
        for bundle in (100, 1000):
            m = measure(S, T, K, bundle)
            print(
                f"| {T:,} | {bundle:,} | {m['records']:,} | {m['largest'] / 1e3:,.0f} | {m['group'] / 1e6:.1f} "
                f"| {m['realization']:,.0f} | {m['realizations written']:,.0f} | {m['sums written']:,.0f} "
                f"| {m['cpu']:.0f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()

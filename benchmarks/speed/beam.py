"""The Beam engine on its own runner, against Beam's readers doing nothing and against a plain CombineFn.

Sums are compared with sums: nobody estimates. The naive one sees a twentieth of the realizations, and
records per second are compared.
"""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.speed.harness import LONG, Bench, Contestant, Row, ratio

#: By (order, number of states): blocks against reading blocks, records against reading records.
BLOCKS = {("sorted", 10): 1.2, ("sorted", 100): 2.0, ("shuffled", 10): 3.5, ("shuffled", 100): 5.0}
RECORDS = {("sorted", 10): 1.3, ("sorted", 100): 1.8}
NAIVE = {"sorted": 30, "shuffled": 12}
MODULE = "beam_contestants"
#: Seconds after which none is run again. A pipeline takes some, and up to 0.2 s of them by chance: at the end
#: of a bundle Beam waits for a thread that sleeps so long.
ENOUGH = 3 * LONG


def cases(bench: Bench) -> Iterator[Row]:
    for (order, S), goal in BLOCKS.items():
        if bench.quick and S > 10:
            continue  # where step means are more than a tenth of the data
        data = bench.data(1000, 1000, S, order)
        path = {"path": str(data.path())}
        given = path | {"states": data.states}
        best = bench.race(
            data,
            {
                "Beam, blocks": Contestant(MODULE, "blocks", given),
                "Beam, reading blocks": Contestant(MODULE, "read_blocks", path, sums=False),
            },
            long=ENOUGH,
        )
        measured = ratio(best["Beam, blocks"], best["Beam, reading blocks"])
        yield Row("Beam blocks / no-op ReadFromParquetBatched", data.name, f"<= {goal}", measured)
        if S == 10:
            yield from _against_naive(bench, order, best["Beam, blocks"], data.records)
    for (order, S), goal in RECORDS.items():
        data = bench.data(10_000 // S, 1000, S, order)
        path = {"path": str(data.path())}
        best = bench.race(
            data,
            {
                "Beam, records": Contestant(MODULE, "records", path | {"states": data.states}),
                "Beam, reading records": Contestant(MODULE, "read_records", path, sums=False),
            },
            long=ENOUGH,
        )
        measured = ratio(best["Beam, records"], best["Beam, reading records"])
        yield Row("Beam record by record / no-op ReadFromParquet", data.name, f"<= {goal}", measured)
    yield from _streaming(bench)


def _streaming(bench: Bench) -> Iterator[Row]:
    """The pairing step alone, state and all, on a bounded feed that comes as one bundle: with many records of
    each realization in it, and with few, as in a stream."""
    for K, T, S in ((200, 50, 10), (200, 50, 100), (1000, 5, 10), (1000, 5, 100)):
        data = bench.data(K, T, S)
        given = {"path": str(data.path()), "states": data.states}
        right = bench.race(data, {"Beam, pairing summed": Contestant(MODULE, "pair_sums", given)}, 0)
        best = bench.race(
            data,
            {
                "Beam, pairing": Contestant(MODULE, "pair", given, sums=False),
                "Beam, no-op stateful": Contestant(MODULE, "remember", given, sums=False),
            },
            long=ENOUGH,
        )
        good = None not in right.values()
        measured = ratio(best["Beam, no-op stateful"], best["Beam, pairing"]) if good else None
        yield Row("streaming pairing, records/s against a no-op stateful step", data.name, ">= 0.8", measured)


def _against_naive(bench: Bench, order: str, ours: float | None, records: int) -> Iterator[Row]:
    data = bench.data(50, 1000, 10, order)
    given = {"path": str(data.path()), "states": data.states}
    best = bench.race(data, {"Beam, naive": Contestant(MODULE, "naive", given)}, 1)
    naive = best["Beam, naive"]
    measured = ratio(None if naive is None else naive * records / data.records, ours)
    yield Row("naive outer-product CombinePerKey / Beam blocks", data.name, f">= {NAIVE[order]}", measured)

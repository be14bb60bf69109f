"""Run the cases: `python -m benchmarks.speed [--quick] [--only local ...] [--write docs/performance.md]`."""

from __future__ import annotations

import argparse
import importlib
import sys
import tempfile
from pathlib import Path

from benchmarks.speed import table
from benchmarks.speed.harness import PEERS, Bench, Row

CASES = ("local", "irregular", "formats", "memory", "growth", "startup", "beam")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the data")
    parser.add_argument("--only", nargs="+", choices=CASES, default=CASES)
    parser.add_argument("--clock", choices=["seconds", "cpu"], default="seconds",
                        help="compare wall time, or processor time on a busy machine")  # fmt: skip
    parser.add_argument("--json", type=Path, default=Path("out/bench.json"))
    parser.add_argument("--write", type=Path, metavar="PAGE", help="put the table into this page")
    options = parser.parse_args()
    if not PEERS.exists():
        sys.exit(
            f"the peers' environment is missing; `make {PEERS.parents[1].relative_to(Path.cwd())}/ready`"
        )
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="aggmc-bench-") as directory:
        bench = Bench(Path(directory), options.quick, options.clock)
        for name in options.only:
            for row in importlib.import_module(f"benchmarks.speed.{name}").cases(bench):
                rows.append(row)
                print(table.markdown([row], {**ABOUT}).splitlines()[2], flush=True)
            # What was measured is kept also if the rest is not waited for.
            table.save(rows, ABOUT, bench, options.json)
            if options.write:
                table.write_between_marks(table.markdown(rows, ABOUT), options.write)
        bench.close()
    print("\n" + table.markdown(rows, ABOUT))


ABOUT = table.facts()

if __name__ == "__main__":
    main()

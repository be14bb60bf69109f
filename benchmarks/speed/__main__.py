"""Run the cases: `python -m benchmarks.speed [--quick] [--only PATTERN ...] [--write PAGE]`."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from benchmarks.speed import beam, estimates, local, startup, table
from benchmarks.speed.harness import PEERS, Bench, Row

MODULES = (local, estimates, beam, startup)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the data")
    parser.add_argument(
        "--only", nargs="+", default=[""], metavar="PATTERN", help="rows with this in their names"
    )
    parser.add_argument("--list", action="store_true", help="show the names of rows")
    parser.add_argument("--clock", choices=["seconds", "cpu"], default="seconds",
                        help="compare wall time, or processor time on a busy machine")  # fmt: skip
    parser.add_argument("--json", type=Path, default=Path("out/bench.json"))
    parser.add_argument("--write", type=Path, metavar="PAGE", help="put the table into this page")
    options = parser.parse_args()
    if not PEERS.exists():
        sys.exit("the environment of the peers is missing: make benchmarks/.venv/ready")
    rows: list[Row] = []
    about = table.facts()
    with tempfile.TemporaryDirectory(prefix="aggmc-bench-") as directory:
        bench = Bench(Path(directory), options.quick, options.clock)
        for module in MODULES:
            for name, measure in module.cases(bench):
                if not any(pattern in name for pattern in options.only):
                    continue
                if options.list:
                    print(name)
                    continue
                for row in measure():
                    rows.append(row)
                    print(table.line(row), flush=True)
                # What was measured is kept also if the rest is not waited for.
                table.save(rows, about, bench, options.json)
                if options.write:
                    table.write_between_marks(table.markdown(rows, about), options.write)
        bench.close()
    if not options.list:
        print("\n" + table.markdown(rows, about))


if __name__ == "__main__":
    main()

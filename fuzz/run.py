"""Fuzz all targets and say how many executions ran: `python fuzz/run.py [--runs N | --seconds N]`.

Each target gets a share of the runs that suits its speed. The first defect of a target ends it: the
input is kept in `.fuzz/found`, and belongs into `fuzz/corpus/TARGET`, which `make test` replays. An execution of
`differential` is a row that all ways of reading are compared on, and its defects are disagreements; its inputs are
drawn by number.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

HERE = Path(__file__).parent
WORK = Path(".fuzz")
#: Shares of all runs. Parsers and decoders do tens of thousands a second, estimates some hundreds.
SHARES = {
    "json_record": 40, "raw_file": 25, "message": 20, "override": 6, "coders": 5, "sealed_file": 1.5,
    "yaml_config": 1, "records": 1, "configs": 0.3, "config_file": 0.1, "estimates": 0.1, "table": 0.05,
    "counts": 0.05, "differential": 10,
}  # fmt: skip
DIFFERENTIAL = "differential"


@dataclass(frozen=True)
class Outcome:
    target: str
    runs: int
    defects: int
    coverage: int
    inputs: int
    last: str


def fuzz(target: str, runs: int, seconds: int, seed: int) -> Outcome:
    """One target in a process of its own, from its corpus and what earlier runs have found."""
    found, kept, grown = WORK / "found", HERE / "corpus" / target, WORK / "corpus" / target
    for folder in (found, grown):
        folder.mkdir(parents=True, exist_ok=True)
    if target == DIFFERENTIAL:
        differential = [sys.executable, str(HERE / "differential.py"), f"--cases={runs}", f"--seed={seed}"]
        return _run(target, [*differential, f"--seconds={seconds}"])
    command = [sys.executable, str(HERE / "one.py"), target, f"-runs={runs}", f"-seed={seed}"]
    command += ["-max_len=4096", "-timeout=120", "-rss_limit_mb=3000", "-print_final_stats=1", "-verbosity=1"]
    command += [f"-artifact_prefix={found}/{target}-"]
    if seconds:
        command.append(f"-max_total_time={seconds}")
    command += [str(grown), *([str(kept)] if kept.is_dir() else [])]
    return _run(target, command)


def _run(target: str, command: list[str]) -> Outcome:
    found, grown = WORK / "found", WORK / "corpus" / target
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0"}
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment)
    text = done.stdout.decode(errors="replace")
    if done.returncode:
        (found / f"{target}.log").write_text(text)
        print(text[-3000:], file=sys.stderr)
    coverage = re.findall(r"cov: (\d+)", text)
    executed = re.search(r"number_of_executed_units:\s*(\d+)", text) or re.search(r"Done (\d+) runs", text)
    last = [
        line.strip()
        for line in text.splitlines()
        if re.match(r"\s*(\w+\.)*\w*(Error|Exception|Warning|Hang|Unflagged|Disagreement)\b", line)
    ]
    return Outcome(
        target,
        int(executed[1]) if executed else 0,
        int(done.returncode != 0),
        int(coverage[-1]) if coverage else 0,
        len(list(grown.iterdir())),
        last[-1] if done.returncode and last else "",
    )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=10_500_000, help="executions in all (10,500,000)")
    parser.add_argument("--seconds", type=int, default=0, help="at most this long for each target (no limit)")
    parser.add_argument("--seed", type=int, default=1, help="of the mutations (1)")
    parser.add_argument(
        "--target", action="append", choices=list(SHARES), help="only this one; may be repeated"
    )
    parser.add_argument(
        "--json", type=Path, default=WORK / "result.json", help="where figures go (.fuzz/result.json)"
    )
    options = parser.parse_args()
    targets = options.target or list(SHARES)
    whole = sum(SHARES[t] for t in targets)
    outcomes = []
    for target in targets:
        runs = round(options.runs * SHARES[target] / whole)
        outcome = fuzz(target, runs, options.seconds, options.seed)
        print(
            f"{target:<12} {outcome.runs:>11,} executions, {outcome.defects} defects, "
            f"{outcome.coverage:,} branches, {outcome.inputs:,} inputs kept {outcome.last}",
            flush=True,
        )
        outcomes.append(outcome)
        total = {"executions": sum(o.runs for o in outcomes), "defects": sum(o.defects for o in outcomes)}
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(
            json.dumps({**total, "targets": [asdict(o) for o in outcomes]}, indent=1) + "\n"
        )
    print(f"{'all':<12} {total['executions']:>11,} executions, {total['defects']} defects")
    return 1 if total["defects"] or any(o.runs == 0 for o in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())

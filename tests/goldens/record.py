"""Write down what the code gives now: `python -m tests.goldens.record [--only PART] [--case TEXT]`.

Look at the difference before it is committed: each line of the files is one case.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import warnings
from pathlib import Path
from typing import Any

from .case import Case
from .cases import all_cases
from .doors import Record, rounded

#: What is kept apart, so that it can be recorded apart. `points`: matrices and all that was counted.
#: `auto`: matrices that auto and gmm have chosen. `errors`: statistics, standard errors first.
#: Each with the digits that are kept.
PARTS = {"points": 15, "auto": 15, "errors": 9}
HERE = Path(__file__).parent


def path_of(part: str) -> Path:
    return HERE / f"{part}.jsonl"


def expected(part: str) -> dict[str, Any]:
    """What was recorded, by case."""
    lines = path_of(part).read_text(encoding="utf-8").splitlines() if path_of(part).exists() else []
    return {d["case"]: d["found"] for d in map(json.loads, lines)}


def record_of(case: Case) -> Record:
    """What the code gives now, as it is kept."""
    # Short names: rejected rows tell those of their files.
    with tempfile.TemporaryDirectory() as directory, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = case.record(Path(directory))
        return {part: rounded(found[part], digits) for part, digits in PARTS.items()}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--only", choices=list(PARTS), action="append", help="which file to write (all)")
    options.add_argument("--case", default="", help="only cases whose name has this text")
    given = options.parse_args()
    known = {part: expected(part) for part in given.only or list(PARTS)}
    cases = all_cases()
    for case in cases:
        if given.case in case.id:
            found = record_of(case)
            for part in known:
                known[part][case.id] = found[part]
    for part, lines in known.items():
        kept = [{"case": c.id, "found": lines[c.id]} for c in cases if lines.get(c.id)]
        text = "".join(json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n" for line in kept)
        path_of(part).write_text(text, encoding="utf-8")
        print(f"{path_of(part).name}: {len(kept)} cases, {len(text.encode()) / 1e6:.2f} MB")


if __name__ == "__main__":
    main()

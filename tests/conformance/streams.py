"""A stream that is fed through a watched folder, and what it has written so far."""

from __future__ import annotations

import itertools
import json
import time

import frames
from apache_beam.runners.runner import PipelineState

from aggmc_beam.beam.run import start
from aggmc_beam.config import read_config
from aggmc_beam.local import run as run_locally

#: How long something may take that must happen. A busy machine is slow; a right answer is never early.
PATIENCE = 180


class Stream:
    """A running job. `put` gives it records, `until` waits for an estimate from so many of them."""

    def __init__(self, runner, folder, **more):
        self.runner, self.folder, self.numbers = runner, folder, itertools.count()
        (folder / "in").mkdir()
        self.plain = frames.config(
            folder / "in" / "*.jsonl",
            input={"watch": "1s"},
            uncertainty={"block": 5, "replicates": 6},
            stream={"refresh": "1s"},
            output={"directory": str(folder / "out")},
            **more,
        )
        self.job = start(read_config(self.plain), [*runner.options, *runner.stream])

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.runner.cancel()
        self.job.cancel()
        self.wait(lambda: PipelineState.is_terminal(self.job.state), lambda: "an end after it was cancelled")

    def put(self, rows):
        """A file with these rows, text or records, appears in the folder."""
        text = [row if isinstance(row, str) else json.dumps(row) for row in rows]
        path = self.folder / f"{next(self.numbers)}.jsonl"
        path.write_text("\n".join(text) + "\n", encoding="utf-8")
        path.rename(self.folder / "in" / path.name)

    def estimates(self):
        return self._read("estimates.jsonl")

    def rejected(self):
        return self._read("rejected.jsonl")

    def until(self, records, **counts):
        """The first estimate from this number of records, with these other counts."""
        wanted = {"records": records, **counts}
        return self.wait(
            lambda: next((e for e in self.estimates() if wanted.items() <= e["counts"].items()), None),
            lambda: f"an estimate with {wanted}; the last: {[e['counts'] for e in self.estimates()[-1:]]}",
        )

    def wait(self, found, what):
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            value = found()
            if value:
                return value
            time.sleep(0.5)
        raise AssertionError(f"the job is {self.job.state}, and there is not yet {what()}")

    def _read(self, name):
        path = self.folder / "out" / name
        if not path.exists():
            return []
        # The last line may be under way.
        text = path.read_text(encoding="utf-8")
        return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]

    def local(self, rows):
        """What the local engine makes of the same records."""
        path = self.folder / f"batch{next(self.numbers)}.jsonl"
        path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
        plain = {k: v for k, v in self.plain.items() if k not in ("stream", "output")}
        [made] = run_locally(read_config({**plain, "input": {"files": str(path)}})).estimates
        return json.loads(made.to_json())


def rows(K=4, T=30, seed=3):
    """Records step by step, as a feed would bring them."""
    y = frames.counts(K=K, T=T, seed=seed)
    return [{"realization": k, "time": t, "counts": y[k, t].tolist()} for t in range(T) for k in range(K)]

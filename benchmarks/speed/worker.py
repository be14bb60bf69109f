"""The far end of a worker: runs functions of one module and tells what they took.

`python -m benchmarks.speed.worker MODULE` reads a request a line, `{"function", "arguments", "sums"}`, and
answers each by a line, `{"seconds", "cpu", "peak", "value"}` or `{"error"}`. Sums are handed out by a
function, so that putting them together is not timed. It must run where there is numpy and little else.
"""

from __future__ import annotations

import importlib
import json
import os
import resource
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np


def peak() -> float:
    """Most memory so far in MB, of this process alone."""
    try:
        # ru_maxrss starts at the size of the process that started this one.
        return int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) / 1024
    except (OSError, IndexError):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _cpu() -> float:
    """Processor time so far, also that of processes that have ended."""
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + spent.ru_utime + spent.ru_stime


def run(module: Any, request: dict[str, Any]) -> dict[str, Any]:
    function = getattr(module, request["function"])
    cpu, started = _cpu(), time.perf_counter()
    value = function(**request["arguments"])
    answer = {"seconds": time.perf_counter() - started, "cpu": _cpu() - cpu, "peak": peak()}
    if not callable(value):
        return answer | ({} if value is None else {"value": value})
    if request["sums"]:
        found = value()
        np.savez(request["sums"], pairs=found.pairs, gram=found.gram, cross=found.cross)
    return answer


def main(name: str) -> None:
    # Whatever a library prints must not get between the answers.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    module = importlib.import_module(name)
    for line in sys.stdin:
        try:
            answer = run(module, json.loads(line))
        except MemoryError:
            answer = {"error": "out of memory"}
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main(sys.argv[1])

"""Change the code in small ways and see whether the tests notice: `python -m tools.mutate [--number N] [MODULE ...]`.

A mutant is one change of one line: another comparison, operator or number, a condition turned round, a statement
left out. It is killed if a test of its module fails; those that come to its lines are run. Survivors are
printed with what was changed: each asks for a test, or for a reason why nobody could notice. Reasons that were found
are in `EQUAL`, and such mutants are not drawn.
"""

from __future__ import annotations

import argparse
import ast
import copy
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
#: The core, and the tests that guard each module; the first to fail ends the run of a mutant.
CORE: dict[str, list[str]] = {
    "aggmc_beam/sums/kernel.py": ["tests/test_sums.py", "tests/test_moments.py"],
    "aggmc_beam/sums/sums.py": ["tests/test_sums.py", "tests/test_storage.py", "tests/test_numbers.py"],
    "aggmc_beam/sums/steps.py": [
        "tests/test_sums.py",
        "tests/test_moments.py",
        "tests/test_stream_values.py",
    ],
    "aggmc_beam/sums/tracks.py": ["tests/test_sums.py", "tests/test_stream_track.py", "tests/test_resume.py"],
    "aggmc_beam/sums/track.py": ["tests/test_stream_track.py"],
    "aggmc_beam/sums/state.py": ["tests/test_sums.py", "tests/test_resume.py", "tests/test_local.py"],
    "aggmc_beam/sums/jackknife.py": ["tests/test_sums.py", "tests/test_inference.py", "tests/test_resume.py"],
    "aggmc_beam/sums/storage.py": ["tests/test_storage.py", "tests/test_chaos_stored.py"],
    "aggmc_beam/sums/run_file.py": [
        "tests/test_storage.py",
        "tests/test_chaos_stored.py",
        "tests/test_resume.py",
    ],
    "aggmc_beam/records.py": ["tests/test_records.py", "tests/test_gaps.py"],
    "aggmc_beam/beam/pair.py": ["tests/test_beam_pair.py"],
    "aggmc_beam/beam/joining.py": ["tests/test_beam_pair.py"],
    "aggmc_beam/ledger.py": ["tests/test_ledger.py"],
    "aggmc_beam/durable.py": ["tests/test_durable.py", "tests/test_chaos_disk.py"],
    "aggmc_beam/local/staging.py": ["tests/test_durable.py", "tests/test_chaos_disk.py"],
    "aggmc_beam/local/lock.py": ["tests/test_durable.py"],
    "aggmc_beam/local/output.py": ["tests/test_durable.py", "tests/test_cli.py", "tests/test_local.py"],
    "aggmc_beam/local/unchanged.py": ["tests/test_durable.py", "tests/test_chaos_input.py"],
}
#: Mutants that do the same as the original, by what was changed, with the reason.
EQUAL: dict[str, dict[str, str]] = {
    "aggmc_beam/sums/sums.py": {
        "(int(group.max()) + 1) * cells * reps >= 2 ** 62  ->  (int(group.max()) + 1) * cells * reps > 2 ** 62": (
            "exactly so many labels fit into 64 bits as well"
        ),
    },
    "aggmc_beam/beam/pair.py": {
        "known.newest < now  ->  known.newest <= now": "an equal moment is set to itself",
    },
}
#: Tests of a mutant may take so many times as long as without it, and seconds more, before they are said to hang.
PATIENCE, GRACE = 2, 20

_COMPARE = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
_BINARY = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd, ast.Pow: ast.Mult,
}  # fmt: skip


@dataclass(frozen=True)
class Mutant:
    module: str
    lines: range
    what: str
    source: str


def mutants(module: str) -> Iterator[Mutant]:
    """All mutants of a module. Annotations, docstrings and texts of errors are left alone."""
    tree = ast.parse((ROOT / module).read_text(encoding="utf-8"))
    nodes = [node for node in ast.walk(tree) if hasattr(node, "lineno")]
    spared = {id(inner) for node in nodes for part in _spared(node) for inner in ast.walk(part)}
    for number, node in enumerate(nodes):
        if id(node) in spared:
            continue
        changed = copy.deepcopy(tree)
        found = [n for n in ast.walk(changed) if hasattr(n, "lineno")][number]
        if _change(found):
            what = f"{_short(ast.unparse(node))}  ->  {_short(ast.unparse(found))}"
            lines = range(node.lineno, (getattr(node, "end_lineno", None) or node.lineno) + 1)
            if what not in EQUAL.get(module, {}):
                yield Mutant(module, lines, what, ast.unparse(changed))


def _spared(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.Raise | ast.Assert | ast.Import | ast.ImportFrom | ast.JoinedStr):
        yield node
    if isinstance(node, ast.FunctionDef):
        yield from node.decorator_list
        yield from filter(None, [node.returns, *(a.annotation for a in node.args.args)])
    if isinstance(node, ast.AnnAssign):
        yield node.annotation
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        yield node  # a docstring
    if isinstance(node, ast.keyword) and node.arg == "strict":
        yield node


def _change(node: ast.AST) -> bool:
    """Change a node in place; False if nothing of it can be changed."""
    if isinstance(node, ast.Expr | ast.AugAssign):  # left out
        node.__class__ = ast.Pass  # type: ignore[assignment]
    elif isinstance(node, ast.Compare):
        kind = type(node.ops[0])
        node.ops[0] = _COMPARE[kind]()
    elif isinstance(node, ast.BinOp) and type(node.op) in _BINARY:
        node.op = _BINARY[type(node.op)]()
    elif isinstance(node, ast.BoolOp):
        node.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        node.op = ast.UAdd()
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        node.operand = ast.UnaryOp(ast.Not(), node.operand)
    elif isinstance(node, ast.If | ast.IfExp | ast.While):
        node.test = ast.UnaryOp(ast.Not(), node.test)
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        node.value = not node.value
    elif isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        node.value = node.value + 1
    else:
        return False
    ast.fix_missing_locations(node)
    return True


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 90 else f"{line[:87]}..."


class Touched:
    """A plugin of pytest that keeps which lines of a file each test comes to, and how long it takes."""

    def __init__(self, file: Path, result: Path) -> None:
        self.file, self.result = str(file), result
        self.found: dict[str, tuple[float, list[int]]] = {}

    def pytest_runtest_protocol(self, item: Any) -> None:
        self.lines: set[int] = set()
        self.began = time.monotonic()
        threading.settrace(self._called)
        sys.settrace(self._called)

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        sys.settrace(None)
        self.found[nodeid] = (time.monotonic() - self.began, sorted(self.lines))

    def pytest_sessionfinish(self) -> None:
        self.result.write_text(json.dumps(self.found), encoding="utf-8")

    def _called(self, frame: Any, event: str, given: Any) -> Any:
        return self._line if frame.f_code.co_filename == self.file else None

    def _line(self, frame: Any, event: str, given: Any) -> Any:
        self.lines.add(frame.f_lineno)
        return self._line


class InOrder:
    """A plugin of pytest by which only tests that come to the lines of a mutant are run, the quick ones first, and
    those that start processes, which cannot be looked into. Lines of which no test is known to come to them, as they
    are run when a module is imported, are for all tests."""

    def __init__(self, mutant: Mutant, known: dict[str, tuple[float, set[int]]]) -> None:
        self.rank = {test: (lines.isdisjoint(mutant.lines), s) for test, (s, lines) in known.items()}

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        items.sort(key=lambda item: self.rank.get(item.nodeid, (True, 0.0)))
        if items and not self.rank.get(items[0].nodeid, (True, 0.0))[0]:
            items[:] = [
                item
                for item in items
                if not self.rank.get(item.nodeid, (False, 0.0))[0] or hasattr(item.module, "subprocess")
            ]


class Bench:
    """A copy of the tree in which mutants are tried, each in a process forked from one that has imported the
    libraries."""

    def __init__(self, directory: Path) -> None:
        self.tree = directory
        for name in (
            "aggmc_beam",
            "tests",
            "benchmarks",
            "tools",
            "configs",
            "docs",
            "pyproject.toml",
            "README.md",
        ):
            source, target = ROOT / name, directory / name
            if source.is_dir():
                shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(source, target)
        os.environ |= {"PYTHONPATH": str(directory), "PYTHONDONTWRITEBYTECODE": "1"}
        sys.dont_write_bytecode = True
        sys.path[:] = [str(directory), *(p for p in sys.path if p and Path(p).resolve() != ROOT)]
        import apache_beam  # noqa: F401
        import numpy  # noqa: F401
        import polars  # noqa: F401
        import pytest  # noqa: F401
        import scipy.optimize  # noqa: F401

    def passes(self, tests: list[str], plugin: Any, seconds: float | None = None) -> bool:
        """Whether the tests pass, within that time if one is given."""
        child = os.fork()
        if not child:
            self._run(tests, plugin)
        began = time.monotonic()
        while True:
            found, status = os.waitpid(child, os.WNOHANG)
            if found:
                return os.waitstatus_to_exitcode(status) == 0
            if seconds is not None and time.monotonic() - began > seconds:
                os.killpg(child, signal.SIGKILL)
                os.waitpid(child, 0)
                return False
            time.sleep(0.02)

    def _run(self, tests: list[str], plugin: Any) -> None:
        code = 1
        try:
            os.setsid()
            log = os.open(self.tree / "tests.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(log, 1)
            os.dup2(log, 2)
            os.chdir(self.tree)
            import pytest

            options = ["-x", "-q", "-p", "no:xdist", "-m", "not accept and not chaos"]
            code = int(pytest.main([*options, *tests], plugins=[plugin]))
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)

    def touched(self, module: str, tests: list[str]) -> dict[str, tuple[float, set[int]]] | None:
        """The seconds of each test, and the lines of a module that it comes to; None if one fails."""
        path = self.tree / "touched.json"
        if not self.passes(tests, Touched(self.tree / module, path)):
            return None
        found = json.loads(path.read_text(encoding="utf-8"))
        return {test: (seconds, set(lines)) for test, (seconds, lines) in found.items()}

    def kills(
        self, mutant: Mutant, tests: list[str], known: dict[str, tuple[float, set[int]]], seconds: float
    ) -> bool:
        target = self.tree / mutant.module
        right = target.read_text(encoding="utf-8")
        target.write_text(mutant.source, encoding="utf-8")
        try:
            return not self.passes(tests, InOrder(mutant, known), seconds)
        finally:
            target.write_text(right, encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "module", nargs="*", default=list(CORE), help="such as aggmc_beam/sums/kernel.py (all of the core)"
    )
    parser.add_argument("--number", type=int, default=0, help="mutants of each module, drawn at random (all)")
    parser.add_argument("--seed", type=int, default=1, help="of the draw (1)")
    given = parser.parse_args()
    killed = tried = 0
    with tempfile.TemporaryDirectory() as directory:
        bench = Bench(Path(directory))
        for module in given.module:
            found, tests = list(mutants(module)), [module, *CORE[module]]
            drawn = random.Random(given.seed).sample(found, min(given.number or len(found), len(found)))
            began = time.monotonic()
            known = bench.touched(module, tests)
            if known is None:
                log = (bench.tree / "tests.log").read_text(encoding="utf-8")
                print(f"{module}: its tests fail without any change:\n{log[-3000:]}", file=sys.stderr)
                return 1
            limit = PATIENCE * (time.monotonic() - began) + GRACE
            drawn.sort(key=lambda m: m.lines.start)
            alive = [m for m in drawn if not bench.kills(m, tests, known, limit)]
            killed, tried = killed + len(drawn) - len(alive), tried + len(drawn)
            print(f"{module}: {len(drawn) - len(alive)} of {len(drawn)} killed (of {len(found)})", flush=True)
            for m in alive:
                print(f"  survived, line {m.lines.start}: {m.what}", flush=True)
    print(f"{killed} of {tried} mutants were killed, {100 * killed / max(tried, 1):.0f} %")
    return 0


if __name__ == "__main__":
    sys.exit(main())

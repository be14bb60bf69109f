"""Beam's counters: all are documented, and those of a run are the numbers of its ledger."""

import ast
import json
import re
from pathlib import Path

import apache_beam as beam
import dirty
import pytest
from apache_beam.metrics import MetricsFilter

from aggmc_beam.beam import run as beam_run
from aggmc_beam.beam.metrics import NAMESPACE
from aggmc_beam.beam.plan import open_plan
from aggmc_beam.config import read_config
from aggmc_beam.local import output

ROOT = Path(__file__).parent.parent


def in_code():
    """Names given to `counter` anywhere in the engine."""
    for path in (ROOT / "aggmc_beam" / "beam").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "counter":
                yield node.args[0].value


def test_the_documentation_lists_every_counter_and_no_other():
    text = (ROOT / "docs" / "beam.md").read_text(encoding="utf-8")
    section = text.split("## Counters\n")[1].split("\n## ")[0]
    columns = re.findall(r"^\| (`[^|]*`) \|", section, re.MULTILINE)
    listed = re.findall(r"`(\w+)`", " ".join(columns))
    assert sorted(listed) == sorted(set(in_code()))


@pytest.mark.parametrize("layout", ["wide", "long"])
def test_the_counters_of_a_bounded_run_are_its_ledger(layout, tmp_path):
    feed = dirty.make(11, layout, grouped=True)
    (tmp_path / "in").mkdir()
    plain = feed.config(feed.write(tmp_path / "in", 2), output={"directory": str(tmp_path / "out")})
    plan, files = open_plan(read_config(plain))
    pipeline = beam.Pipeline("FnApiRunner")
    beam_run.build(pipeline, plan, files, plain)
    result = pipeline.run()
    result.wait_until_finish()
    found = result.metrics().query(MetricsFilter().with_namespace(NAMESPACE))["counters"]
    counters = {c.key.metric.name: 0 for c in found}
    for c in found:
        counters[c.key.metric.name] += c.committed
    rows = json.loads((tmp_path / "out" / output.RUN).read_text())["ledger"]["rows"]
    assert rows == dirty.account(feed)[0].to_dict()
    names = {"read": "rows", "used": "records", "duplicate": "duplicates", "rejected": "rejected"}
    assert {name: counters[counter] for name, counter in names.items()} == {n: rows[n] for n in names}

"""Rows of BigQuery as input, read by Beam's own client from a server of the tests."""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone
from decimal import Decimal

import frames
import numpy as np
import pytest
from google_services import big_query, cloud_storage

import aggmc_beam as am
from aggmc_beam.beam import run as beam_run
from aggmc_beam.config import read_config
from aggmc_beam.errors import InputError

TABLE = "aggmc-test:feed.counts"
TEMP = ("--temp_location=gs://bucket/tmp", "--project=aggmc-test")
BEGIN = datetime(2024, 1, 1, tzinfo=timezone.utc)


@pytest.fixture
def bigquery(monkeypatch):
    with cloud_storage(monkeypatch) as storage, big_query(monkeypatch, storage) as server:
        yield server


def fill(server, y, name=TABLE):
    """A table with a time stamp, and counts that are whole, decimal and floating numbers."""
    kinds = ("INTEGER", "NUMERIC", "FLOAT")
    fields = [("realization", "STRING"), ("time", "TIMESTAMP"), *zip(frames.STATES, kinds, strict=True)]
    server.schemas[name] = [{"name": n, "type": kind, "mode": "NULLABLE"} for n, kind in fields]
    server.rows[name] = [
        {
            "realization": f"area {k}",
            "time": BEGIN + timedelta(hours=t),
            **dict(zip(frames.STATES, (int(a), Decimal(int(b)), float(c)), strict=True)),
        }
        for k, path in enumerate(y)
        for t, (a, b, c) in enumerate(path)
    ]


def config(out, **source):
    plain = frames.config("none", input={"step": "1h"}, output={"directory": str(out)})
    plain["input"] = {"bigquery": source, "step": "1h"}
    return {**plain, "states": list(frames.STATES)}


@pytest.mark.parametrize("source", ["table", "query"])
def test_rows_of_bigquery_give_what_am_estimate_gives(source, bigquery, tmp_path):
    y = frames.counts(K=25, T=20)
    fill(bigquery, y)
    again = {**bigquery.rows[TABLE][3]}
    broken = {**bigquery.rows[TABLE][4], frames.STATES[0]: None}
    bigquery.rows[TABLE] += [again, broken]
    query = "SELECT * FROM feed.counts"
    bigquery.queries[query] = TABLE
    given = config(tmp_path / "out", **({"table": TABLE} if source == "table" else {"query": query}))
    beam_run.run(read_config(given), given, TEMP)
    estimates, ledger = beam_run.read_back(read_config(given))
    expected = am.estimate(y, states=frames.STATES, noise=am.Binomial(0.5), population=200, estimator="mom")
    np.testing.assert_allclose(estimates[0].transition_matrix, expected.transition_matrix, rtol=0, atol=1e-12)
    assert ledger["rows"] == {"read": 502, "used": 500, "duplicate": 1, "rejected": 1, "late": 0}
    [rejected] = map(json.loads, (tmp_path / "out" / "rejected.jsonl").read_text().splitlines())
    assert "missing" in rejected["reason"]
    assert rejected["source"]["row"] is None
    assert not bigquery.datasets


def test_what_is_missing_for_bigquery_is_told(bigquery, tmp_path):
    given = config(tmp_path, table=TABLE)
    with pytest.raises(InputError, match="add --temp_location=gs://"):
        beam_run.run(read_config(given), given)
    with pytest.raises(InputError, match=r"input.bigquery.table or input.bigquery.query must be given"):
        read_config(config(tmp_path))
    given = config(tmp_path, table="counts")
    with pytest.raises(InputError, match="not project:dataset.table"):
        beam_run.run(read_config(given), given, TEMP)
    with pytest.raises(InputError, match="states must be listed"):
        read_config({**config(tmp_path, table=TABLE), "states": "from-data"})

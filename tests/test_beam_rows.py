"""Rows as `beam.managed` hands over those of Kafka and Iceberg: the types of Beam's schemas."""

from __future__ import annotations

import json
import typing
from datetime import datetime, timedelta, timezone
from decimal import Decimal

import apache_beam as beam
import numpy as np
from apache_beam.testing.util import assert_that
from apache_beam.utils.timestamp import Timestamp

import aggmc_beam as am
from aggmc_beam.beam import EstimateTransitions
from aggmc_beam.beam.provider import EstimateTransitionsYaml

STATES = ["home", "away"]
BEGIN = datetime(2024, 1, 1, tzinfo=timezone.utc)


class Iceberg(typing.NamedTuple):
    """The types of a table with long, timestamptz, int, decimal and an optional field."""

    area: np.int64
    at: Timestamp
    home: np.int32
    away: typing.Optional[Decimal]  # noqa: UP045


class Kafka(typing.NamedTuple):
    """A message in the format RAW."""

    payload: bytes


beam.coders.registry.register_coder(Iceberg, beam.coders.RowCoder)
beam.coders.registry.register_coder(Kafka, beam.coders.RowCoder)


def counts():
    return am.simulate(states=2, steps=20, realizations=25, population=50, seed=1)[0]


def check(y):
    expected = am.estimate(y, states=STATES, population=50)

    def same(found):
        [matrix] = found
        np.testing.assert_allclose(matrix, expected.transition_matrix, rtol=0, atol=1e-12)

    return same


def test_rows_of_iceberg_are_read_as_they_are():
    y = counts()
    rows = [
        Iceberg(
            k,
            Timestamp.from_utc_datetime(BEGIN + timedelta(hours=t)),
            int(y[k, t, 0]),
            Decimal(int(y[k, t, 1])),
        )
        for k, t in np.ndindex(25, 20)
    ]
    broken = rows[3]._replace(away=None)
    config = {"states": STATES, "realization": "area", "time": "at", "step": "1h", "population": 50}
    with beam.Pipeline("FnApiRunner") as p:
        given = p | beam.Create([*rows, broken], reshuffle=True).with_output_types(Iceberg)
        found = given | EstimateTransitionsYaml(**config, error_handling={"output": "bad"})
        matrices = found["output"] | beam.Map(lambda row: json.loads(row.details)["transition_matrix"])
        assert_that(matrices, check(y))
        assert_that(
            found["bad"] | beam.Map(lambda row: row.msg), lambda found: len(found) == 1 or 1 / 0, "bad"
        )


def test_messages_of_kafka_are_json_in_a_row_of_bytes():
    y = counts()
    rows = [
        Kafka(json.dumps({"realization": k, "time": t, "counts": y[k, t].tolist()}).encode())
        for k, t in np.ndindex(25, 20)
    ]
    with beam.Pipeline("FnApiRunner") as p:
        given = p | beam.Create(rows, reshuffle=True).with_output_types(Kafka)
        found = given | EstimateTransitions(STATES, population=50)
        assert_that(found.estimates | beam.Map(lambda e: e.transition_matrix), check(y))

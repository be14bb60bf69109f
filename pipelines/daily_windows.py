"""Rows of BigQuery in daily windows to a table: `python pipelines/daily_windows.py --temp_location=gs://B/tmp`"""

import apache_beam as beam
from apache_beam.transforms.window import FixedWindows, TimestampedValue

import aggmc_beam as am
from aggmc_beam.beam import EstimateTransitions, WriteEstimates

QUERY = "SELECT area AS realization, time, home, away FROM feed.counts"
STATES = ["home", "away"]


def build(pipeline, query=QUERY, table="project:results.daily"):
    found = (
        pipeline
        | beam.io.ReadFromBigQuery(query=query, use_standard_sql=True)
        | beam.Map(lambda row: TimestampedValue(row, row["time"].timestamp()))
        | beam.WindowInto(FixedWindows(24 * 3600))
        | EstimateTransitions(STATES, am.Binomial(0.5), 200, counts=STATES, step="1h", windowing="input")
    )
    _ = found.estimates | WriteEstimates(bigquery=table)
    return found


if __name__ == "__main__":
    with beam.Pipeline() as pipeline:
        build(pipeline)

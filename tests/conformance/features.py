"""What the suite checks on a runner, in the order of the table; and what a runner cannot do."""

from __future__ import annotations

FEATURES = {
    "stationary": "stationary chain",
    "per-step": "chain per step",
    "windows": "sliding windows",
    "cycle": "cycle",
    "disorder": "records in any order, with gaps",
    "duplicates": "repeated records",
    "csv": "CSV, several files",
    "parquet": "Parquet",
    "long": "a row per state, over several files",
    "jsonl": "JSON lines",
    "groups": "groups",
    "bad": "bad and contradicting records, with reasons",
    "populations": "a population per realization",
    "published": "suppressed, rounded, clipped and missing counts; marks, thousands, weeks, shares",
    "moments": "saved moments",
    "errors": "an error in the data, told in one line",
    "transform": "EstimateTransitions in a pipeline",
    "steps": "SumRecords and SumsCombineFn in sliding windows",
    "stream": "a watched folder: estimates are refreshed",
    "stream-bad": "stream: repeated and bad records",
    "failover": "a worker machine is lost during a stream: sums are exact",
}

#: Why a runner is not asked for something.
UNSUPPORTED = {
    **{
        (runner, feature): "it runs each step to its end before the next begins"
        for runner in ("fnapi", "fnapi-multi")
        for feature in ("stream", "stream-bad")
    },
    **{
        ("spark", feature): "Beam's portable Spark runner takes bounded pipelines; see below"
        for feature in ("stream", "stream-bad", "failover")
    },
    **{
        (runner, "failover"): "it runs on one machine, and does not outlive it"
        for runner in ("fnapi", "fnapi-multi", "prism")
    },
}

"""Bundles that fail at random and are tried again by the runner: nothing is lost or counted twice."""

from __future__ import annotations

import random
from unittest import mock

import apache_beam as beam
import collected
import frames
import numpy as np
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.testing.test_stream import TestStream as Arrivals

import aggmc_beam as am
from aggmc_beam.beam import EstimateTransitions, Stream, exact
from aggmc_beam.ledger import Ledger
from aggmc_beam.sums.state import AggregationState
from aggmc_beam.sums.track import Track


class Flaky:
    """A function whose work is done and then thrown away by an error, now and then.

    It rests for a number of calls in between, since the runner gives up on a bundle after four attempts.
    """

    def __init__(self, function, rest, limit):
        self.function, self.rest, self.limit = function, rest, limit
        self.rng, self.failures, self.calls = random.Random(4), 0, 0

    def __call__(self, *arguments):
        found = self.function(*arguments)
        self.calls += 1
        if self.failures < self.limit and self.calls > self.rest and self.rng.random() < 0.2:
            self.failures, self.calls = self.failures + 1, 0
            raise RuntimeError("a worker was lost")
        return found


def test_a_bounded_run_whose_bundles_are_tried_again_is_as_without():
    y = frames.counts(K=30, T=12)
    rows = [{"realization": k, "time": t, "counts": y[k, t].tolist()} for k, t in np.ndindex(30, 12)]
    given = [*rows, *rows[40:90], *["garbage"] * 9]
    flaky = Flaky(AggregationState.add, 2, 3)
    broken = mock.patch.object(AggregationState, "add", lambda state, *given: flaky(state, *given))
    singly = mock.patch.object(exact, "VALUES", 1)  # a call for each key
    with broken, singly, beam.Pipeline("BundleBasedDirectRunner") as pipeline:
        made = EstimateTransitions(frames.STATES, am.Binomial(0.5), 200, "mom")
        found = pipeline | beam.Create(given) | made
        _ = found.estimates | beam.Map(collected.keep, "bounded")
        _ = found.rejected | "Rejected" >> beam.Map(collected.keep, "bounded/rejected")
    assert flaky.failures == 3
    [last], rejected = collected.FOUND.pop("bounded"), collected.FOUND.pop("bounded/rejected")
    expected = am.estimate(y, noise=am.Binomial(0.5), population=200, estimator="mom")
    np.testing.assert_allclose(last.transition_matrix, expected.transition_matrix, rtol=0, atol=1e-10)
    assert Ledger.of(last.counts, len(given)).check() == Ledger(419, 360, 50, 9)
    assert len(rejected) == 9


def test_a_stream_whose_bundles_are_tried_again_loses_and_repeats_nothing(tmp_path):
    y = frames.counts(K=5, T=40)
    rows = [{"realization": k, "time": t, "counts": y[k, t].tolist()} for k, t in np.ndindex(5, 40)]
    rng = np.random.default_rng(2)
    again = [rows[i] for i in rng.choice(len(rows), 40, replace=False)]
    arriving = [(rows + again)[i] for i in rng.permutation(len(rows) + len(again))]
    arriving[100:100] = ["garbage"] * 7
    stream = Arrivals()
    for i in range(0, len(arriving), 10):
        stream = stream.add_elements(arriving[i : i + 10]).advance_processing_time(30)
    stream = stream.advance_processing_time(120).advance_watermark_to_infinity()
    options = {"block": 5, "replicates": 6, "stream": Stream()}
    made = EstimateTransitions(frames.STATES, am.Binomial(0.5), 200, "mom", **options)

    flaky = Flaky(Track.take, 10, 1000)
    broken = mock.patch.object(Track, "take", lambda track, *given: flaky(track, *given))
    streaming = PipelineOptions(["--streaming"])
    with broken, beam.Pipeline("BundleBasedDirectRunner", options=streaming) as pipeline:
        found = pipeline | stream | made
        _ = found.estimates | beam.Map(collected.keep, "retried")
        _ = found.rejected | "Rejected" >> beam.Map(collected.keep, "retried/rejected")
        _ = found.health | "Health" >> beam.Map(collected.keep, "retried/health")
    assert flaky.failures > 10
    last, rejected = collected.FOUND.pop("retried")[-1], collected.FOUND.pop("retried/rejected")
    expected = am.estimate(y, noise=am.Binomial(0.5), population=200, estimator="mom")
    np.testing.assert_allclose(last.transition_matrix, expected.transition_matrix, rtol=0, atol=1e-10)
    assert (last.counts["records"], last.counts["duplicates"], len(rejected)) == (200, 40, 7)
    health = collected.FOUND.pop("retried/health")[-1]
    assert Ledger(**health["ledger"]) == Ledger(247, 200, 40, 7)

"""Pub/Sub in sliding windows with early firings, by the CombineFn: `pipelines/sliding_stream.py --streaming`"""

import apache_beam as beam
from apache_beam.transforms.trigger import AccumulationMode, AfterProcessingTime, AfterWatermark
from apache_beam.transforms.window import SlidingWindows

import aggmc_beam as am
from aggmc_beam.beam import Estimate, SumsCombineFn, WriteEstimates


def build(pipeline, subscription, topic, size=6 * 3600, every=3600, early=60):
    sums = SumsCombineFn(["home", "away"], am.Binomial(0.5), 200, step="1m")
    return (
        pipeline
        | beam.io.ReadFromPubSub(subscription=subscription, timestamp_attribute="time")
        | beam.WindowInto(
            SlidingWindows(size, every),
            trigger=AfterWatermark(early=AfterProcessingTime(early)),
            accumulation_mode=AccumulationMode.ACCUMULATING,
        )
        | beam.CombineGlobally(sums).with_fanout(4).without_defaults()
        | Estimate()
        | WriteEstimates(pubsub=topic)
    )


if __name__ == "__main__":
    with beam.Pipeline() as pipeline:
        build(pipeline, "projects/P/subscriptions/counts", "projects/P/topics/estimates")

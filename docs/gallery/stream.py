# %% [markdown]
# # A Beam stream
# The same estimate inside a pipeline of Apache Beam. Here it is a bounded one, on this machine; on Dataflow or Flink
# the lines are the same, and from Pub/Sub the estimates are made anew while records arrive.
# %%
import apache_beam as beam

import aggmc_beam as am
from aggmc_beam.beam import EstimateTransitions

states = ["idle", "busy", "down"]
moves = [[0.80, 0.18, 0.02], [0.25, 0.70, 0.05], [0.30, 0.10, 0.60]]
counts, _ = am.simulate(moves, population=800, steps=60, realizations=20, noise=am.Binomial(0.6), seed=5)
records = [
    {"realization": k, "time": t, "counts": counts[k, t].tolist()} for k in range(20) for t in range(60)
]
records[0], len(records)
# %% [markdown]
# One record is broken, one comes twice. Neither stops the pipeline: the first goes to the output for rejected
# records with its reason, the second counts once.
# %%
import tempfile

out = tempfile.mkdtemp()
fed = [*records, {"realization": 0, "time": 1, "counts": [1, "x", 2]}, records[7]]
with beam.Pipeline("FnApiRunner") as pipeline:
    found = pipeline | beam.Create(fed) | EstimateTransitions(states, am.Binomial(0.6), population=800)
    lines = found.estimates | "To JSON" >> beam.Map(lambda e: e.to_json())
    reasons = found.rejected | "Why" >> beam.Map(lambda rejected: rejected["reason"])
    _ = lines | "Estimates" >> beam.io.WriteToText(f"{out}/estimates", shard_name_template="")
    _ = reasons | "Rejected" >> beam.io.WriteToText(f"{out}/rejected", shard_name_template="")
print(open(f"{out}/rejected").read())
# %%
est = am.read_estimates(f"{out}/estimates")
est
# %%
est.plot("flows")
# %% [markdown]
# It is the estimate of the array, to the last digit of the sums:
# %%
import numpy as np

alone = am.estimate(counts, states, noise=am.Binomial(0.6), population=800)
float(np.abs(np.asarray(est) - np.asarray(alone)).max())
# %% [markdown]
# ## What could not be learned
# What happens within a step, and whether machines that went down are the same ones again. A stream never ends, so
# every estimate is that of the records so far: late ones change it, and the ledger tells how many came too late.

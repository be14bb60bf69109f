# %% [markdown]
# # Birds with gaps
# Ringed birds are looked for at three lakes, once a week. A bird that is there is seen with a probability that
# depends on the lake, and in some weeks nobody could go.
# %%
import numpy as np
import polars as pl

import aggmc_beam as am

lakes = ["reed", "open", "island"]
moves = [[0.85, 0.10, 0.05], [0.15, 0.80, 0.05], [0.05, 0.10, 0.85]]
seen = am.Detection([0.7, 0.4, 0.3])
counts, _ = am.simulate(
    moves, population=400, steps=30, realizations=25, noise=seen, start=[0.8, 0.1, 0.1], seed=3
)
rng = np.random.default_rng(3)
rows = [
    {"year": k, "week": t, "lake": lake, "birds": counts[k, t, j]}
    for k in range(25)
    for t in range(30)
    if rng.random() > 0.15
    for j, lake in enumerate(lakes)
]
table = pl.DataFrame(rows)
table.head(4)
# %% [markdown]
# A long table, with a row for each lake. Weeks without rows are gaps: no pair of weeks is made across them.
# %%
est = am.estimate(
    table, lakes, noise=seen, population=400, realization="year", time="week", state="lake", counts="birds"
)
est
# %%
est.counts["gaps"]
# %%
est.plot("network")
# %% [markdown]
# How long do birds stay, and where do they settle? Each answer with its error:
# %%
found = am.follows(est)
found
# %% [markdown]
# ## What could not be learned
# Detection is taken as known: from these counts alone a lake where birds are hard to see cannot be told from one
# where few birds are. If the probabilities are wrong, so is the matrix. Here is what a wrong one does, and whether
# the counts contradict it:
# %%
wrong = am.estimate(table, lakes, noise=am.Detection([0.5, 0.5, 0.5]), population=400, realization="year",
                    time="week", state="lake", counts="birds")  # fmt: skip
{
    "largest change": float(np.abs(np.asarray(wrong) - np.asarray(est)).max().round(3)),
    "warnings": list(wrong.warnings),
}

# %% [markdown]
# # A census with privacy noise
# A statistical office publishes, for 40 districts and 24 quarters, how many people are employed, unemployed and
# inactive. To protect them it adds Laplace noise with a stated budget to every count. How do people move between
# the three?
# %%
import aggmc_beam as am

states = ["employed", "unemployed", "inactive"]
moves = [[0.94, 0.02, 0.04], [0.25, 0.60, 0.15], [0.05, 0.03, 0.92]]
noise = am.Laplace.private(epsilon=0.2)
published, _ = am.simulate(
    moves, population=500, steps=24, realizations=40, noise=noise, start=[0.5, 0.2, 0.3], seed=1
)
noise, published[0, :2].round(1).tolist()
# %% [markdown]
# The noise goes into the estimate as it was stated. Counts below zero are fine: noise was added to them.
# %%
est = am.estimate(published, states, noise=noise, population=500)
est
# %%
est.plot("flows")
# %% [markdown]
# As a table for a slide or a spreadsheet (`to_pandas`, `to_csv` and `to_excel` give the same):
# %%
est.to_pandas().round(3)
# %% [markdown]
# The obvious method, least squares on consecutive counts, is pulled away from the truth by the noise:
# %%
import numpy as np

plain = am.estimate(published, states, noise=noise, population=500, estimator="cls")
{
    name: round(float(np.abs(np.asarray(e) - moves).max()), 3)
    for name, e in (("ours", est), ("least squares", plain))
}
# %% [markdown]
# ## What could not be learned
# Whether everybody moves alike: a mixture of people who never change and people who change often has the same
# counts as one matrix between them. Who moved: only how many. And rows of small states stay uncertain, since the
# noise of each count is the same whether ten or ten thousand people stand behind it; their intervals say so.
# %%
lower, upper = est.interval()
dict(zip(states, (upper - lower).max(axis=1).round(3).tolist()))

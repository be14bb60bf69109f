# %% [markdown]
# # Elections
# Votes of 300 districts in two elections. Nobody tells how those who chose a party went on; the districts differ,
# and that is what tells. This is ecological inference: a chain of two steps, with other parties on the right.
# %%
import numpy as np
import pandas as pd

import aggmc_beam as am

before, after = ["left", "right", "none"], ["left", "right", "new", "none"]
rng = np.random.default_rng(4)
loyal = np.array([[0.75, 0.05, 0.12, 0.08], [0.05, 0.80, 0.05, 0.10], [0.08, 0.07, 0.05, 0.80]])
size = rng.integers(500, 3000, 300)
first = np.array([rng.multinomial(n, rng.dirichlet([4, 4, 3])) for n in size])
second = np.array([sum(rng.multinomial(n, p) for n, p in zip(row, loyal)) for row in first])
pd.DataFrame(np.hstack([first, second]), columns=[*(f"{p} before" for p in before), *after]).head(3)
# %%
table = am.cross_table(first, second, rows=before, columns=after)
print(table)
# %% [markdown]
# As a frame, and beside the truth that these data were drawn from:
# %%
found = table.transition_matrix
pd.DataFrame(found, index=before, columns=after).round(3)
# %%
from matplotlib import pyplot as plt

figure, ax = plt.subplots(figsize=(5, 4))
ax.plot([0, 1], [0, 1], color="0.7")
ax.plot(loyal.ravel(), found.ravel(), "o")
ax.set_xlabel("truth")
ax.set_ylabel("estimate")
figure
# %% [markdown]
# ## What could not be learned
# How single districts went: only bounds and what all have in common. If loyalty depends on the size of a party in a
# district, the estimate is off, and no test on totals alone can exclude it: here it is constant, because these data
# were made so.

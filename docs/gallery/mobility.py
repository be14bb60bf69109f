# %% [markdown]
# # Hourly mobility
# Devices in four zones, hour by hour, for 60 days. People move otherwise in the morning than at night, and each
# device is seen with probability one half.
# %%
import numpy as np
import pandas as pd

import aggmc_beam as am

zones = ["home", "centre", "school", "park"]
night = np.array(
    [[0.95, 0.02, 0.02, 0.01], [0.40, 0.55, 0.02, 0.03], [0.60, 0.05, 0.30, 0.05], [0.50, 0.10, 0.05, 0.35]]
)
morning = np.array(
    [[0.60, 0.25, 0.12, 0.03], [0.05, 0.90, 0.02, 0.03], [0.03, 0.02, 0.94, 0.01], [0.20, 0.30, 0.10, 0.40]]
)
path = [morning if 6 <= hour % 24 < 12 else night for hour in range(23)]
counts, _ = am.simulate(path, population=5000, realizations=60, noise=am.Binomial(0.5), seed=2)
frame = pd.DataFrame(
    [(day, hour, *counts[day, hour]) for day in range(60) for hour in range(24)],
    columns=["day", "hour", *zones],
)
frame.head(3)
# %% [markdown]
# A pandas frame goes in as it is; the names of its columns are arguments. `Cycle(24)` asks for one matrix per hour.
# %%
hours = am.estimate(
    frame, zones, realization="day", time="hour", noise=am.Binomial(0.5), population=5000, chain=am.Cycle(24)
)
hours
# %%
hours.plot([("home", "centre"), ("home", "school"), ("centre", "home")])
# %%
hours.cell(8)
# %%
hours.pooled.plot("map", coordinates={"home": (0, 0), "centre": (3, 1), "school": (2, -1), "park": (1, 2)})
# %% [markdown]
# Is eight in the morning another matrix than eight in the evening? `compare` tests it, and frames the entries that
# differ.
# %%
am.compare(hours.cell(20), hours.cell(8)).plot()
# %% [markdown]
# How many went from home to the centre, hour by hour? The same frame and the same names of columns, and each hour
# its own matrix:
# %%
flows = am.flows(frame, hours, realization="day", time="hour")
flows.plot([("home", "centre"), ("home", "school"), ("centre", "home")], realization=59)
# %%
flows.to_pandas().query("realization == '59' and time == 7 and `from` == 'home'").round(1)
# %% [markdown]
# And at noon of a day of which seven hours are known?
# %%
today = frame[(frame.day == 59) & (frame.hour < 7)]
hours.forecast(today, 6, realization=None, time="hour")
# %% [markdown]
# ## What could not be learned
# Trips that begin and end within the hour. Single hours of rare zones: sixty days give sixty transitions of each
# hour, and the intervals of the park are wide. And the last hour of the day leads to no other in these data, so that
# no matrix stands for it:
# %%
sorted(set(range(24)) - set(hours.cells)), hours.skipped

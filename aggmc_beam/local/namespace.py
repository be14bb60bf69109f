"""`df.aggmc.estimate(...)` for Polars frames."""

"""Speed, as ratios against named alternatives: `make bench`.

A contestant is a function in `ours.py`, `peers.py` or `beam_contestants.py` that takes plain arguments and
returns the sums it found (see `sums.Sums`), or None where it only reads. It runs in a worker process of
its module, so that imports are not timed. A module of cases has `cases(bench)`, which yields `Row`s.
"""

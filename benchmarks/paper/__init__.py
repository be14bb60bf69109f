"""The experiments of Bernstein & Sheldon (2016), section 6, and what we add to them.

A config describes an experiment, `grid` its cells, `trial` turns a cell into rows, `runner` runs and
keeps them, `figures`, `claims` and `page` show what came out. `pipelines/paper.py` is the command.
"""

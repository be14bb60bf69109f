"""Settings of all tests."""

from hypothesis import settings

# A machine may be busy: how long an example takes says nothing about whether it is right.
settings.register_profile("aggmc", deadline=None)
settings.load_profile("aggmc")

# Doctests are looked for in every file; this name is also that of another folder's settings.
collect_ignore = ["conftest.py"]

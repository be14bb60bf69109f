"""Settings of all tests."""

from hypothesis import settings

# A machine may be busy: how long an example takes says nothing about whether it is right.
settings.register_profile("aggmc", deadline=None)
settings.load_profile("aggmc")

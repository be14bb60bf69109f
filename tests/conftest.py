"""Settings of all tests."""

from apache_beam.options.pipeline_options import StandardOptions
from apache_beam.runners import runner
from hypothesis import settings

# A machine may be busy: how long an example takes says nothing about whether it is right.
settings.register_profile("aggmc", deadline=None)
settings.load_profile("aggmc")

# The oldest Beam of our range has the runner, and does not know it by this name alone.
if "FnApiRunner" not in StandardOptions.KNOWN_RUNNER_NAMES:
    runner._RUNNER_MAP["fnapirunner"] = "apache_beam.runners.portability.fn_api_runner.FnApiRunner"

# Doctests are looked for in every file; this name is also that of another folder's settings.
collect_ignore = ["conftest.py"]

"""The same work with and without compiled loops."""

import sys
from contextlib import contextmanager, nullcontext

from aggmc_beam import native

#: Ids and contexts for tests of both roads.
ROADS = {"compiled": nullcontext, "numpy": lambda: numpy_alone()}


@contextmanager
def numpy_alone():
    """As if the package had been installed without a compiler."""
    users = [
        module
        for name, module in sys.modules.items()
        if name.startswith("aggmc_beam.") and vars(module).get("compiled", None) is native.compiled
    ]
    held = native.compiled
    for module in users:
        module.compiled = None
    try:
        yield
    finally:
        for module in users:
            module.compiled = held

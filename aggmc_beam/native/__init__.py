"""Inner loops in C, where the package was installed with a compiler at hand.

Without them, or with AGGMC_NATIVE=0, numpy finds the same: to the last bit, but slower.
"""

from __future__ import annotations

import os

try:
    if os.environ.get("AGGMC_NATIVE") == "0":
        raise ImportError("switched off")
    from aggmc_beam.native import compiled
except ImportError:
    compiled = None  # type: ignore[assignment]

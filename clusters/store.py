"""Where downloaded engines are kept, and how they are fetched."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path

#: The installed Beam, which engines should match.
BEAM = version("apache-beam")


class Missing(Exception):
    """An engine cannot be had here; says what is missing."""


def cache(*parts: str) -> Path:
    """A folder that outlives checkouts, so that engines are fetched once: $AGGMC_CACHE."""
    root = os.environ.get("AGGMC_CACHE") or Path.home() / ".cache" / "aggmc-beam"
    return Path(root, *parts)


def tool(name: str, purpose: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise Missing(f"{name} is not installed; it is needed {purpose}")
    return found


def fetched(command: Sequence[str | Path], what: str, more: Mapping[str, str] | None = None) -> None:
    """Run a package client; `Missing` with its last words if it fails."""
    done = subprocess.run(
        [str(word) for word in command],
        env={**os.environ, **(more or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        told = [line for line in done.stdout.splitlines() if line.strip()]
        first = next((line for line in told if "ERROR" in line), told[-1] if told else "no message")
        raise Missing(f"{what} cannot be fetched: {first[:300]}")

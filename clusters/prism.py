"""Beam's Prism runner at the version of the installed Beam: `python clusters/prism.py` prints its path."""

from __future__ import annotations

import sys
from pathlib import Path

from store import BEAM, Missing, cache, fetched, tool

MODULE = "github.com/apache/beam/sdks/v2/go/cmd/prism"


def prism() -> Path:
    """The program; built by Go, which checks what it downloads against its checksum database."""
    folder = cache(f"prism-{BEAM}")
    path = folder / "prism"
    if not path.exists():
        go = tool("go", "to build Prism")
        fetched([go, "install", f"{MODULE}@v{BEAM}"], f"Prism {BEAM}", {"GOBIN": str(folder)})
    return path


if __name__ == "__main__":
    try:
        print(prism())
    except Missing as error:
        sys.exit(f"Prism: {error}")

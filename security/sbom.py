"""The software bill of materials in CycloneDX's JSON: `sbom.py LOCKFILE > sbom.json`.

What is locked, with versions and the hashes that are accepted; it is made of the lock alone, so that it can be made
anew from any commit.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent


def components(lock: Path) -> list[dict]:
    """Each locked package."""
    text = lock.read_text(encoding="utf-8").replace("\\\n", " ")
    found = []
    for line in text.splitlines():
        pinned = re.match(r"([A-Za-z0-9._-]+)(?:\[[^]]*\])?==([^\s;\\]+)", line)
        if pinned:
            name, version = canonicalize_name(pinned[1]), pinned[2]
            hashes = re.findall(r"--hash=sha256:([0-9a-f]{64})", line)
            # The hashes are those of all files of a release: which of them is installed depends on the machine.
            files = [{"type": "distribution", "url": f"pkg:pypi/{name}@{version}",
                      "hashes": [{"alg": "SHA-256", "content": h}]} for h in hashes]  # fmt: skip
            found.append({
                "type": "library", "bom-ref": f"pkg:pypi/{name}@{version}", "name": name, "version": version,
                "purl": f"pkg:pypi/{name}@{version}", "externalReferences": files,
            })  # fmt: skip
    return found


def bill(lock: Path) -> dict:
    version = re.search(
        r'__version__ = "(.+)"', (ROOT / "aggmc_beam/__init__.py").read_text(encoding="utf-8")
    )
    assert version is not None
    about = {"type": "library", "bom-ref": "aggmc-beam", "name": "aggmc-beam", "version": version[1],
             "licenses": [{"license": {"id": "Apache-2.0"}}]}  # fmt: skip
    return {
        "bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1, "metadata": {"component": about},
        "components": components(lock),
    }  # fmt: skip


if __name__ == "__main__":
    print(json.dumps(bill(Path(sys.argv[1])), indent=1))

"""Look locked requirements up in the database of known vulnerabilities: `audit.py LOCKFILE ...`.

Exit code 0: every package was looked up and none is known to be vulnerable. 1: some are. 3: the database
could not be asked for some packages, so nothing is known about them; that is never reported as clean.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

CLEAN, VULNERABLE, USAGE, UNKNOWN = range(4)


def look_up(lock: str) -> tuple[list[dict], str]:
    """What pip-audit found of each package, and what it said."""
    command = [sys.executable, "-m", "pip_audit", "--require-hashes", "--disable-pip", "--requirement", lock]
    command += ["--format", "json", "--progress-spinner", "off"]
    done = subprocess.run(command, capture_output=True, text=True)
    try:
        return json.loads(done.stdout)["dependencies"], done.stderr
    except (ValueError, KeyError):
        return [], done.stderr


def main(locks: list[str]) -> int:
    if not locks:
        print(__doc__, file=sys.stderr)
        return USAGE
    worst = CLEAN
    for lock in locks:
        found, said = look_up(lock)
        bad = [p for p in found if p.get("vulns")]
        unknown = [p for p in found if "skip_reason" in p]
        for package in bad:
            names = ", ".join(v["id"] for v in package["vulns"])
            print(f"{lock}: {package['name']} {package['version']} is vulnerable: {names}")
        if not found or unknown:
            print(f"{lock}: {len(unknown) or 'all'} packages were NOT audited: the database did not answer.")
            print(f"  {(unknown[0]['skip_reason'] if unknown else said.strip().splitlines()[-1:] or said)}")
            worst = worst or UNKNOWN
        print(f"{lock}: {len(found) - len(unknown)} packages looked up, {len(bad)} vulnerable")
        worst = VULNERABLE if bad else worst
    return worst


if __name__ == "__main__":
    sys.exit(main([str(Path(a)) for a in sys.argv[1:]]))

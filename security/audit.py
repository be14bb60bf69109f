"""Look locked requirements up among known vulnerabilities: `audit.py [--advisories DIR_OR_ZIP] LOCKFILE ...`.

Asks PyPI's database, or with --advisories an offline copy of one in the format of OSV (JSON files in a folder or a
zip, such as the export of osv.dev for PyPI). Exit code 0: every package was looked up and none is known to be
vulnerable. 1: some are. 3: the database could not be asked for some packages, so nothing is known about them; that is
never reported as clean.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import zipfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

CLEAN, VULNERABLE, USAGE, UNKNOWN = range(4)
#: name -> (id, what OSV says is affected)
Advisories = dict[str, list[tuple[str, dict]]]


def ask(lock: Path) -> tuple[list[dict], str]:
    """What pip-audit found of each package, and what it said."""
    command = [
        sys.executable,
        "-m",
        "pip_audit",
        "--require-hashes",
        "--disable-pip",
        "--requirement",
        str(lock),
    ]
    command += ["--format", "json", "--progress-spinner", "off"]
    done = subprocess.run(command, capture_output=True, text=True)
    try:
        return json.loads(done.stdout)["dependencies"], done.stderr
    except (ValueError, KeyError):
        return [], done.stderr


def look_up(lock: Path, advisories: Advisories) -> list[dict]:
    """The same from an offline copy."""
    return [
        {"name": name, "version": version, "vulns": [{"id": i} for i in found(name, version, advisories)]}
        for name, version in locked(lock)
    ]


def locked(lock: Path) -> Iterator[tuple[str, str]]:
    """(name, version) of each requirement."""
    for line in lock.read_text(encoding="utf-8").splitlines():
        pinned = re.match(r"([A-Za-z0-9._-]+)(?:\[[^]]*\])?==([^\s;\\]+)", line)
        if pinned:
            yield canonicalize_name(pinned[1]), pinned[2]


def found(name: str, version: str, advisories: Advisories) -> list[str]:
    """Ids of the advisories that a version is subject to."""
    return sorted({i for i, affected in advisories.get(name, []) if is_affected(Version(version), affected)})


def is_affected(version: Version, affected: dict) -> bool:
    """Whether OSV's `affected` object covers a version: by its list, or by a range of events."""
    if any(_version(v) == version for v in affected.get("versions", [])):
        return True
    for span in affected.get("ranges", []):
        if span.get("type") != "ECOSYSTEM":
            continue
        inside = False
        for event in sorted(span["events"], key=_when):
            at = _when(event)
            if "introduced" in event and version >= at:
                inside = True
            elif ("fixed" in event and version >= at) or ("last_affected" in event and version > at):
                inside = False
        if inside:
            return True
    return False


def _when(event: dict) -> Version:
    [(_, at)] = event.items()
    return _version(at) or Version("0")


def _version(text: str) -> Version | None:
    try:
        return Version(text)
    except InvalidVersion:
        return None


def read_advisories(source: Path) -> Advisories:
    """Advisories of PyPI by package, without those that were withdrawn."""
    by_name: Advisories = defaultdict(list)
    for text in _files(source):
        advisory = json.loads(text)
        if "withdrawn" in advisory:
            continue
        for affected in advisory.get("affected", []):
            package = affected.get("package", {})
            if package.get("ecosystem") == "PyPI":
                by_name[canonicalize_name(package["name"])].append((advisory["id"], affected))
    return by_name


def _files(source: Path) -> Iterator[bytes]:
    if source.is_dir():
        yield from (path.read_bytes() for path in sorted(source.rglob("*.json")))
        return
    with zipfile.ZipFile(source) as archive:
        yield from (archive.read(name) for name in archive.namelist() if name.endswith(".json"))


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--advisories", type=Path, help="an offline copy of the database")
    parser.add_argument("lock", type=Path, nargs="+")
    given = parser.parse_args(arguments)
    known = read_advisories(given.advisories) if given.advisories else None
    if known is not None and not known:
        print(f"{given.advisories} holds no advisories of PyPI in OSV's format", file=sys.stderr)
        return UNKNOWN
    worst = CLEAN
    for lock in given.lock:
        packages, said = (look_up(lock, known), "") if known is not None else ask(lock)
        bad = [p for p in packages if p.get("vulns")]
        unknown = [p for p in packages if "skip_reason" in p]
        for package in bad:
            names = ", ".join(v["id"] for v in package["vulns"])
            print(f"{lock}: {package['name']} {package['version']} is vulnerable: {names}")
        if not packages or unknown:
            print(f"{lock}: {len(unknown) or 'all'} packages were NOT audited: the database did not answer.")
            print(f"  {(unknown[0]['skip_reason'] if unknown else said.strip().splitlines()[-1:] or said)}")
            worst = worst or UNKNOWN
        print(f"{lock}: {len(packages) - len(unknown)} packages looked up, {len(bad)} vulnerable")
        worst = VULNERABLE if bad else worst
    return worst


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

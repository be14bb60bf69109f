"""The suite runs against the runner that $AGGMC_RUNNER names, and says so where none is named."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

NAME = os.environ.get("AGGMC_RUNNER", "")
HERE = Path(__file__).parent
collect_ignore_glob = [] if NAME else ["*"]

if NAME:
    sys.path[:0] = [str(HERE), str(HERE.parent)]
    import page
    from features import FEATURES, UNSUPPORTED
    from runners import STARTERS, Runner, started
    from store import Missing

OUTCOMES: dict[str, set[str]] = {}
VERSIONS: list[str] = []


def pytest_configure(config):
    if not NAME:
        paths = [Path(config.invocation_params.dir, arg.split("::")[0]).resolve() for arg in config.args]
        if any(HERE == path or HERE in path.parents for path in paths):
            raise pytest.UsageError("name a Beam runner: make conformance RUNNER=fnapi, or AGGMC_RUNNER=fnapi pytest "
                                    "tests/conformance; docs/runners.md lists them")  # fmt: skip
        return
    config.addinivalue_line("markers", "feature(names): what a test of this suite shows")
    # Workers run in this process, and complain in threads of their own when their runner stops.
    config.addinivalue_line("filterwarnings", "default")
    if NAME not in STARTERS:
        raise pytest.UsageError(f"RUNNER={NAME}: it must be one of {', '.join(STARTERS)}")


@pytest.fixture(scope="session")
def runner() -> Runner:
    try:
        found = started(NAME)
    except Missing as error:
        pytest.skip(f"{NAME} is not checked: {error}")
    VERSIONS.append(found.versions)
    return found


def pytest_collection_modifyitems(items):
    for item in items:
        for feature in _features(item):
            reason = UNSUPPORTED.get((NAME, feature))
            if reason:
                item.add_marker(pytest.mark.skip(reason=f"not supported by {NAME}: {reason}"))


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item):
    made = yield
    report = made.get_result()
    if report.when == "call" or report.failed:
        for feature in _features(item):
            OUTCOMES.setdefault(feature, set()).add(report.outcome)


def pytest_sessionfinish(session):
    """Keep the outcomes for the page, if the runner ran."""
    if not VERSIONS or session.config.option.collectonly:
        return
    path = page.RESULTS / f"{NAME}.json"
    known = json.loads(path.read_text(encoding="utf-8"))["features"] if path.exists() else {}
    for feature in FEATURES:
        if (NAME, feature) in UNSUPPORTED:
            known[feature] = f"not supported: {UNSUPPORTED[NAME, feature]}"
        elif feature in OUTCOMES:
            known[feature] = "fails" if "failed" in OUTCOMES[feature] else "pass"
    page.save(NAME, VERSIONS[0], {f: known[f] for f in FEATURES if f in known})


def _features(item):
    return [name for mark in item.iter_markers("feature") for name in mark.args]

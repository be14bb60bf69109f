"""What is locked is listed, and looked up where no network is."""

import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "security"))

import audit  # noqa: E402
import sbom  # noqa: E402

LOCK = "alpha==1.2.0 \\\n    --hash=sha256:" + "0" * 64 + "\nbeta[extra]==2.0 ; python_version < '3.12'\n"


def advisory(name, events, **more):
    affected = {
        "package": {"ecosystem": "PyPI", "name": name},
        "ranges": [{"type": "ECOSYSTEM", "events": events}],
    }
    return {"id": f"OSV-{name}", "affected": [{**affected, **more}]}


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("lock").write_text(LOCK)
    Path("osv").mkdir()
    return tmp_path


def audited(*advisories):
    for number, found in enumerate(advisories):
        Path("osv", f"{number}.json").write_text(json.dumps(found))
    return audit.main(["--advisories", "osv", "lock"])


@pytest.mark.parametrize(
    ("events", "code"),
    [
        ([{"introduced": "0"}], audit.VULNERABLE),
        ([{"introduced": "0"}, {"fixed": "1.2.1"}], audit.VULNERABLE),
        ([{"introduced": "0"}, {"fixed": "1.2.0"}], audit.CLEAN),
        ([{"introduced": "0"}, {"fixed": "1.0"}, {"introduced": "1.1"}, {"fixed": "1.3"}], audit.VULNERABLE),
        ([{"introduced": "1.3"}], audit.CLEAN),
        ([{"introduced": "0"}, {"last_affected": "1.2.0"}], audit.VULNERABLE),
    ],
)
def test_locked_versions_are_looked_up_in_an_offline_copy(events, code, here, capsys):
    assert audited(advisory("Alpha", events)) == code
    assert ("alpha 1.2.0 is vulnerable: OSV-Alpha" in capsys.readouterr().out) == (code == audit.VULNERABLE)


def test_versions_may_be_listed_and_withdrawn_advisories_do_not_count(here):
    assert audited(advisory("beta", [], versions=["2.0"])) == audit.VULNERABLE
    assert (
        audited({**advisory("beta", [], versions=["2.0"]), "withdrawn": "2026-01-01"}, advisory("x", [])) == 0
    )


def test_an_empty_copy_is_not_reported_as_clean(here):
    assert audited() == audit.UNKNOWN


def test_the_bill_of_materials_lists_every_locked_package_with_its_hashes():
    found = sbom.bill(ROOT / "requirements.lock")
    names = {c["name"] for c in found["components"]}
    assert {"apache-beam", "numpy", "polars", "pyyaml", "scipy"} <= names
    assert len(found["components"]) == len(list(audit.locked(ROOT / "requirements.lock")))
    assert len({c["bom-ref"] for c in found["components"]}) == len(found["components"])
    assert all(c["externalReferences"] for c in found["components"])

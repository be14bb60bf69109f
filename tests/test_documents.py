"""What the pages promise: the schema of estimates, the bytes of sums, the notebooks, the metadata of the package."""

import base64
import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml

import aggmc_beam as am
from aggmc_beam.cli import main
from aggmc_beam.sums import storage
from aggmc_beam.sums.run_file import sums_from_bytes, sums_to_arrays

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
BOOKS = sorted((DOCS / "gallery").glob("*.py"))


def estimates():
    y, _ = am.simulate([[0.9, 0.1], [0.3, 0.7]], steps=40, realizations=20, population=300, seed=1)
    yield am.estimate(y, ["in", "out"])
    yield am.estimate(y, ["in", "out"], noise=am.Binomial(0.5), population=600, estimator="gmm")
    yield from am.estimate(y, ["in", "out"], chain=am.Window(20))
    yield from am.estimate(y, ["in", "out"], chain=am.Cycle(2), noise=am.Laplace(2.0))
    y[:, :, 1] = 0
    yield am.estimate(
        np.concatenate([y, y[:, :, 1:]], 2), ["in", "out", "never"], estimator="mom", noise=am.Gaussian(1)
    )


def test_estimates_have_the_published_schema():
    jsonschema = pytest.importorskip("jsonschema")
    schema = json.loads((DOCS / "estimates.schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    for e in estimates():
        line = json.loads(e.to_json())
        jsonschema.validate(line, schema)
        assert list(line) == list(schema["properties"]), "every key is described, in its order"
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**line, "level": 2}, schema)


def vectors():
    found = re.findall(r"```vector\n(.*?)```", (DOCS / "format.md").read_text(), re.DOTALL)
    return ["".join(text.split()) for text in found]


def test_the_bytes_of_the_page_are_those_of_the_code():
    plain, sums = vectors()
    assert storage.pack("demo", {"S": 2}, {"x": np.eye(2)}, deflate=False).hex() == plain
    expected = am.Sums.of(np.array([[[3.0, 1], [2, 2], [1, 3]]]))
    found = sums_to_arrays(sums_from_bytes(base64.b64decode(sums)))
    for name, array in sums_to_arrays(expected).items():
        np.testing.assert_array_equal(found[name], array)
    page = (DOCS / "format.md").read_text()
    assert not [name for name in found if f"`{name}`" not in page]


def test_the_columns_of_the_page_are_those_of_the_code():
    from aggmc_beam.tables import PLACES, TIDY, columns_of

    page = (DOCS / "tables.md").read_text()
    names = [*PLACES, *TIDY, *columns_of([next(estimates())], "summary")]
    assert not [name for name in names if f"`{name}`" not in page]
    y, _ = am.simulate([[0.9, 0.1], [0.3, 0.7]], steps=40, realizations=20, population=300, seed=1)
    e = am.estimate(y, ["in", "out"])
    for found in (am.flows(y, e), e.forecast(y[0], 2), am.alarms(y, e), am.evaluate(y[0], e, [1], start=21)):
        assert not [name for name in found.to_frame().columns if f"`{name}`" not in page]
    assert not [n for n in e.follows().to_frame().columns if f"`{n.partition('_')[0]}`" not in page]


@pytest.mark.parametrize("path", BOOKS, ids=[p.stem for p in BOOKS])
def test_notebooks_run_and_what_is_shown_belongs_to_them(path, tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    monkeypatch.chdir(tmp_path)
    code = [
        c for c in re.split(r"^# %%.*\n", path.read_text(encoding="utf-8"), flags=re.MULTILINE) if c.strip()
    ]
    code = [c.strip() for c in code if not all(line.startswith("#") for line in c.strip().splitlines())]
    book = json.loads(path.with_suffix(".ipynb").read_text(encoding="utf-8"))
    cells = ["".join(cell["source"]).strip() for cell in book["cells"] if cell["cell_type"] == "code"]
    assert cells == code, "make site writes the notebook from its .py"
    kinds = {k for c in book["cells"] for o in c.get("outputs", []) for k in o.get("data", {})}
    assert {"image/png", "text/html"} <= kinds
    done = subprocess.run(
        [sys.executable, "-c", path.read_text(encoding="utf-8")],
        capture_output=True, text=True, timeout=120, env={"PYTHONPATH": str(ROOT), "MPLBACKEND": "Agg", "PATH": ""},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_each_notebook_tells_what_could_not_be_learned():
    assert len(BOOKS) == 5
    for path in BOOKS:
        assert "## What could not be learned" in path.read_text(encoding="utf-8")


def test_the_site_lists_every_page():
    class Loader(yaml.SafeLoader):
        pass

    Loader.add_multi_constructor("tag:yaml.org,2002:python/name", lambda *_: None)
    site = yaml.load((ROOT / "mkdocs.yml").read_text(), Loader)
    listed = re.findall(r"[\w/]+\.(?:md|ipynb)", json.dumps(site["nav"]))
    pages = [p.relative_to(DOCS).as_posix() for p in DOCS.rglob("*") if p.suffix in (".md", ".ipynb")]
    assert sorted(listed) == sorted(pages)


def test_the_citation_is_that_of_the_release():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == am.__version__
    assert citation["license"] == "Apache-2.0"
    assert citation["references"][0]["year"] == 2016


def test_the_first_run_prints_what_the_readme_says(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["run", str(ROOT / "configs" / "quickstart.yaml")]) == 0
    said = re.search(r"`make run` prints\n\n```\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert capsys.readouterr().out.startswith(said[1])

"""`make site`: run the notebooks of the gallery and build the pages of docs/ into a site that needs no network."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import jupytext
import nbformat
from nbconvert.preprocessors import ExecutePreprocessor

ROOT = Path(__file__).parent.parent
GALLERY = ROOT / "docs" / "gallery"
SITE = ROOT / "out" / "site"
#: What the theme would fetch from elsewhere, for its search in pages that are opened as files. Without it the search
#: needs a server, such as `python -m http.server -d out/site`; all else works offline.
SHIM = re.compile(r'<script src="https://unpkg\.com/[^"]*"></script>')
#: Seconds that a cell may take.
PATIENCE = 300


def main() -> int:
    """Execute every notebook, then let mkdocs build and check all links; the exit code."""
    for source in sorted(GALLERY.glob("*.py")):
        began = time.monotonic()
        execute(source, source.with_suffix(".ipynb"))
        print(f"{source.stem}: {time.monotonic() - began:.0f} s", flush=True)
    began = time.monotonic()
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet"]
    code = subprocess.run(command, cwd=ROOT, check=False).returncode
    for page in SITE.rglob("*.html"):
        page.write_text(SHIM.sub("", page.read_text(encoding="utf-8")), encoding="utf-8")
    print(f"site: {time.monotonic() - began:.0f} s")
    return code


def execute(source: Path, target: Path) -> None:
    """Run a notebook that is kept as Python with `# %%` cells, and keep it with what it showed."""
    book = jupytext.read(source)
    book.metadata = nbformat.from_dict({"kernelspec": {"name": "python3", "display_name": "Python 3"}})
    where = {"metadata": {"path": os.fspath(source.parent)}}
    ExecutePreprocessor(timeout=PATIENCE, kernel_name="python3").preprocess(book, where)
    for number, cell in enumerate(book.cells):
        cell.id = f"cell-{number}"
        cell.metadata = nbformat.from_dict({})
    kinds = {kind for cell in book.cells for o in cell.get("outputs", []) for kind in o.get("data", {})}
    if not {"image/png", "text/html"} <= kinds:
        raise SystemExit(
            f"{source.name} shows {sorted(kinds)}; a notebook of the gallery shows a picture and a table"
        )
    nbformat.write(book, target)


if __name__ == "__main__":
    sys.exit(main())

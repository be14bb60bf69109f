"""Tables that commands put into pages of docs/, between comments that name them."""

from __future__ import annotations

from pathlib import Path


def put(page: Path, name: str, text: str) -> None:
    """Replaces what stands between `<!-- name -->` and `<!-- end of name -->`."""
    begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
    before, found, rest = page.read_text(encoding="utf-8").partition(begin)
    _, closed, after = rest.partition(end)
    if not (found and closed):
        raise SystemExit(f"{page} has no place for {name}: {begin.strip()} and {end}")
    page.write_text(f"{before}{begin}\n{text}\n\n{end}{after}", encoding="utf-8")

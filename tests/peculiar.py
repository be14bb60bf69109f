"""One series of counts as publishers write it: a small file for each peculiarity, and what a config says of it."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date, timedelta
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

STATES = ("home", "work", "other")
#: 48 months of counts of which some have four digits.
COUNTS = np.random.default_rng(5).integers(20, 2500, (48, 3))
MONTHS = [f"{2020 + i // 12}-{i % 12 + 1:02}" for i in range(len(COUNTS))]


@dataclass(frozen=True)
class Peculiar:
    """A file: its name and bytes, and the keys of `input` that it needs."""

    name: str
    data: bytes
    input: dict[str, Any] = field(default_factory=dict)
    more: dict[str, Any] = field(default_factory=dict)


def table(
    separator: str = ",",
    number: Callable[[int], str] = str,
    time: Callable[[int], str] = lambda i: MONTHS[i],
    header: str | None = None,
    quote: str = '"',
    end: str = "\n",
) -> str:
    """The series as CSV; fields that hold the separator are quoted."""

    def cell(text: str) -> str:
        return f"{quote}{text}{quote}" if separator in text else text

    lines = [header or separator.join(("month", *STATES))]
    lines += [
        separator.join(map(cell, [time(i), *(number(int(c)) for c in row)])) for i, row in enumerate(COUNTS)
    ]
    return end.join(lines) + end


def grouped(mark: str) -> Callable[[int], str]:
    return lambda count: f"{count:,}".replace(",", mark)


def records() -> list[dict[str, Any]]:
    return [
        {"month": MONTHS[i], **dict(zip(STATES, row.tolist(), strict=True))} for i, row in enumerate(COUNTS)
    ]


def zipped(*names: str) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in names:
            archive.writestr(name, table())
    return out.getvalue()


def zstd(data: bytes) -> bytes:
    return bytes(pa.compress(data, "zstd", asbytes=True))


def parquet(frame: pl.DataFrame) -> bytes:
    out = io.BytesIO()
    frame.write_parquet(out)
    return out.getvalue()


def long_rows() -> str:
    lines = ["month,state,count"]
    for i, row in enumerate(COUNTS):
        lines += [f"{MONTHS[i]},{state},{count}" for state, count in zip(STATES, row, strict=True)]
    return "\n".join(lines) + "\n"


def as_text(record: dict[str, Any]) -> dict[str, str]:
    return {name: value if name == "month" else f"{value:,}" for name, value in record.items()}


def json_lines(rows: list[dict[str, Any]]) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def two_columns(i: int) -> str:
    return MONTHS[i].replace("-", ",")


def daily(pattern: str, step: int = 1) -> Callable[[int], str]:
    return lambda i: f"{date(2024, 1, 1) + timedelta(step * i):{pattern}}"


def iso_week(i: int) -> str:
    year, week, _ = (date(2020, 11, 2) + timedelta(7 * i)).isocalendar()
    return f"{year}-W{week:02}"


PLAIN = table()
FILES = {
    "plain": Peculiar("a.csv", PLAIN.encode()),
    "thousands with commas": Peculiar("a.csv", table(number=grouped(",")).encode()),
    "thousands with points": Peculiar("a.csv", table(";", grouped(".")).encode(), {"decimal": ","}),
    "thousands with spaces": Peculiar("a.csv", table(number=grouped(" ")).encode()),
    "thousands with narrow spaces": Peculiar("a.csv", table(number=grouped("\u202f")).encode()),
    "thousands with apostrophes": Peculiar("a.csv", table(number=grouped("'")).encode()),
    "decimal commas": Peculiar("a.csv", table(";", lambda c: f"{c},0").encode(), {"decimal": ","}),
    "fractions of zeros": Peculiar("a.csv", table(number=lambda c: f"{c}.00").encode()),
    "spaces about the numbers": Peculiar("a.csv", table(number=lambda c: f"  {c} ").encode()),
    "spaces before quotation marks": Peculiar("a.csv", table(number=lambda c: f' "{c}"').encode()),
    "everything in quotation marks": Peculiar(
        "a.csv", "".join('"' + line.replace(",", '","') + '"\n' for line in PLAIN.splitlines()).encode()
    ),
    "semicolons": Peculiar("a.csv", table(";").encode()),
    "tabs": Peculiar("a.txt", table("\t").encode()),
    "bars": Peculiar("a.csv", table("|").encode()),
    "a mark of UTF-8": Peculiar("a.csv", b"\xef\xbb\xbf" + PLAIN.encode()),
    "UTF-16": Peculiar("a.csv", PLAIN.encode("utf-16")),
    "Latin-1": Peculiar(
        "a.csv", PLAIN.replace("home", "zuhöuse").encode("latin-1"), {"encoding": "latin-1"},
        {"states": ["zuhöuse", "work", "other"]},
    ),
    "lines of Windows": Peculiar("a.csv", table(end="\r\n").encode()),
    "gzip": Peculiar("a.csv.gz", gzip.compress(PLAIN.encode())),
    "bzip2": Peculiar("a.csv.bz2", bz2.compress(PLAIN.encode())),
    "zstd": Peculiar("a.csv.zst", zstd(PLAIN.encode())),
    "zip": Peculiar("a.csv.zip", zipped("a.csv")),
    "zip with what a Mac adds": Peculiar("a.csv.zip", zipped("a.csv", "__MACOSX/._a.csv")),
    "titles above": Peculiar("a.csv", ("Table 1: moves\n\n" + PLAIN).encode(), {"skip_lines": 2}),
    "empty rows and columns at the end": Peculiar(
        "a.csv", ("".join(line + ",,\n" for line in PLAIN.splitlines()) + ",,,,,\n" * 3).encode()
    ),
    "ISO weeks": Peculiar("a.csv", table(time=iso_week).encode(), {"step": "week"}),
    "quarters": Peculiar(
        "a.csv", table(time=lambda i: f"{1990 + i // 4} Q{i % 4 + 1}").encode(), {"step": "quarter"}
    ),
    "years": Peculiar("a.csv", table(time=lambda i: str(1900 + i)).encode(), {"step": "year"}),
    "days with points": Peculiar("a.csv", table(time=daily("%d.%m.%Y")).encode(), {"step": "day"}),
    "days as Americans write them": Peculiar(
        "a.csv", table(time=daily("%m/%d/%Y")).encode(), {"step": "day", "time_format": "%m/%d/%Y"}
    ),
    "names of months": Peculiar(
        "a.csv", table(time=lambda i: f"{date(2020 + i // 12, i % 12 + 1, 1):%b %Y}").encode(),
        {"time_format": "%b %Y"},
    ),
    "year and month in two columns": Peculiar(
        "a.csv", table(time=two_columns, header="year,m,home,work,other", quote="").encode(),
        {"columns": {"time": ["year", "m"]}, "time_format": "%Y %m"},
    ),
    "last days of months": Peculiar(
        "a.csv",
        table(time=lambda i: str(date(2020 + (i + 1) // 12, (i + 1) % 12 + 1, 1) - timedelta(1))).encode(),
    ),
    "columns by pattern": Peculiar(
        "a.csv", PLAIN.replace("home,work,other", "n_home,n_work,n_other").encode(),
        {"columns": {"time": "month", "counts": "n_*"}}, {"states": "from-data"},
    ),
    "long": Peculiar("a.csv", long_rows().encode(), {"layout": "long"}),
    "JSON lines": Peculiar("a.jsonl", json_lines(records())),
    "JSON lines with text": Peculiar("a.jsonl", json_lines(list(map(as_text, records())))),
    "Parquet with dates": Peculiar("a.parquet", parquet(
        pl.DataFrame(records()).with_columns(pl.format("{}-01", "month").str.to_date().alias("month"))
    )),
    "Parquet with text": Peculiar("a.parquet", parquet(pl.DataFrame(records()).cast(pl.String))),
}  # fmt: skip

#: Files that cannot be read as they are: the error names the key to set, or says what to do.
UNCLEAR = {
    "points that may be thousands": (Peculiar("a.csv", table(";", grouped(".")).encode()), "input.decimal"),
    "Latin-1 that is not said": (
        Peculiar("a.csv", PLAIN.replace("home", "zuhöuse").encode("latin-1")),
        "input.encoding",
    ),
    "days that may be months": (
        Peculiar("a.csv", table(time=daily("%d/%m/%Y")).encode(), {"step": "day"}),
        "input.time_format",
    ),
    "decimal commas that are not said": (
        Peculiar("a.csv", table(";", lambda c: f"{c},5").encode()),
        "input.decimal",
    ),
    "many suppressed cells": (
        Peculiar("a.csv", table(number=lambda c: "<500" if c < 500 else str(c)).encode()),
        "input.marks",
    ),
    "years in months": (Peculiar("a.csv", table(time=lambda i: str(1900 + i)).encode()), "input.step"),
    "two files in a zip": (Peculiar("a.csv.zip", zipped("a.csv", "b.csv")), "unpack it"),
    "titles that are not said": (
        Peculiar("a.csv", ("Table 1\n" + PLAIN).encode()),
        "input.skip_lines",
    ),
}


def workbook(rows: list[list[Any]], sheets: tuple[str, ...] = ("Sheet1",), above: int = 0) -> bytes:
    """An .xlsx file with the rows in its last sheet, numbers as numbers and texts as texts."""

    def cell(column: int, row: int, value: Any) -> str:
        place = f"{chr(65 + column)}{row}"
        if isinstance(value, int):
            return f'<c r="{place}"><v>{value}</v></c>'
        return f'<c r="{place}" t="inlineStr"><is><t>{value}</t></is></c>'

    lines = [["Title"]] * above + rows
    body = "".join(
        f'<row r="{r}">{"".join(cell(c, r, v) for c, v in enumerate(line))}</row>'
        for r, line in enumerate(lines, 1)
    )
    main = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
    relations = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
    package = "http://schemas.openxmlformats.org/package/2006"
    kind = "application/vnd.openxmlformats-officedocument.spreadsheetml"
    parts = {
        "[Content_Types].xml": f'<Types xmlns="{package}/content-types"><Default Extension="rels" ContentType='
        '"application/vnd.openxmlformats-package.relationships+xml"/><Default Extension="xml" ContentType='
        f'"{kind}.worksheet+xml"/><Override PartName="/xl/workbook.xml" ContentType="{kind}.sheet.main+xml"/>'
        "</Types>",
        "_rels/.rels": f'<Relationships xmlns="{package}/relationships"><Relationship Id="r0" Type='
        f'"{relations}/officeDocument" Target="xl/workbook.xml"/></Relationships>',
        "xl/workbook.xml": f'<workbook xmlns="{main}" xmlns:r="{relations}"><sheets>'
        + "".join(f'<sheet name="{n}" sheetId="{i}" r:id="r{i}"/>' for i, n in enumerate(sheets, 1))
        + "</sheets></workbook>",
        "xl/_rels/workbook.xml.rels": f'<Relationships xmlns="{package}/relationships">'
        + "".join(
            f'<Relationship Id="r{i}" Type="{relations}/worksheet" Target="worksheets/sheet{i}.xml"/>'
            for i in range(1, len(sheets) + 1)
        )
        + "</Relationships>",
    }
    for i in range(1, len(sheets) + 1):
        data = body if i == len(sheets) else ""
        parts[f"xl/worksheets/sheet{i}.xml"] = (
            f'<worksheet xmlns="{main}"><sheetData>{data}</sheetData></worksheet>'
        )
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, text in parts.items():
            archive.writestr(name, f'<?xml version="1.0" encoding="UTF-8"?>{text}')
    return out.getvalue()

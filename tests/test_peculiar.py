"""Small files as publishers write them: the same answer from each, or an error that names the key to set."""

import numpy as np
import peculiar
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from peculiar import COUNTS, FILES, STATES, UNCLEAR

from aggmc_beam.beam.files import File
from aggmc_beam.beam.pieces import Piece, read_blocks
from aggmc_beam.config import read_config
from aggmc_beam.errors import InputError
from aggmc_beam.local import run
from aggmc_beam.local.blocks import BlockReader
from aggmc_beam.local.plan import Plan


def config_of(file, path, **more):
    given = {"files": str(path), "columns": {"time": "month"}, "step": "month", **file.input}
    plain = {"states": list(STATES), "noise": {"model": "gaussian", "sigma": 1}, "population": 5000,
             "estimator": "mom", **file.more, **more, "input": given}  # fmt: skip
    return read_config(plain)


def written(file, directory):
    path = directory / file.name
    path.write_bytes(file.data)
    return path


def records_of(plan):
    """The counts by step from the first, as the local engine and as Beam reads them."""
    for blocks in (
        (block.records for block in BlockReader(plan.sources, plan.schema).blocks()),
        (
            block.records
            for block, _, _ in read_blocks(plan, Piece(File(0, plan.sources[0].name)))
            if block is not None and block.state is None
        ),
    ):
        found = {}
        for records in blocks:
            found |= dict(zip(records.time.tolist(), np.asarray(records.counts, float).tolist(), strict=True))
        yield found


def check_same(plan):
    local, beam = records_of(plan)
    assert [local[t] for t in sorted(local)] == COUNTS.tolist()
    assert sorted(np.diff(sorted(local)).tolist()) == [1] * (len(COUNTS) - 1)
    if plan.schema.state is None and plan.sources[0].is_text:
        assert beam == local


@pytest.mark.parametrize("name", FILES)
def test_each_file_gives_the_same_counts_on_every_engine(name, tmp_path):
    check_same(Plan.open(config_of(FILES[name], written(FILES[name], tmp_path))))


def test_a_folder_of_all_of_them_gives_one_answer(tmp_path):
    answers = []
    for number, file in enumerate(FILES.values()):
        (tmp_path / str(number)).mkdir()
        found = run(config_of(file, written(file, tmp_path / str(number))))
        assert found.ledger["rows"]["rejected"] == 0
        answers.append(found.estimates[0].transition_matrix)
    assert len(answers) >= 30
    for answer in answers:
        np.testing.assert_allclose(answer, answers[0], atol=1e-10)


@pytest.mark.parametrize("name", UNCLEAR)
def test_what_is_unclear_is_an_error_that_names_the_key(name, tmp_path):
    file, key = UNCLEAR[name]
    with pytest.raises(InputError, match=key):
        run(config_of(file, written(file, tmp_path)))


NUMBERS = {"plain": (str, None), "comma": (peculiar.grouped(","), None), "point": (peculiar.grouped("."), ","),
           "space": (peculiar.grouped("\xa0"), None), "fraction": (lambda c: f"{c},0", ","),
           "exponent": (lambda c: f"{c / 10}e1", None), "spaced": (lambda c: f" {c}", None)}  # fmt: skip
TIMES = {"month": (lambda i: peculiar.MONTHS[i], "month", None), "week": (peculiar.iso_week, "week", None),
         "days": (peculiar.daily("%d.%m.%Y"), "day", None), "format": (peculiar.daily("%y%m%d"), "day", "%y%m%d"),
         "stamp": (peculiar.daily("%Y-%m-%dT06:00:00Z"), "day", None)}  # fmt: skip
PACKED = {"": lambda data: data, ".gz": peculiar.gzip.compress, ".bz2": peculiar.bz2.compress}
ENCODED = [("utf-8", None), ("utf-8-sig", None), ("utf-16", None), ("latin-1", "latin-1"),
           ("cp1252", "windows-1252"), ("utf-16-le", "utf-16-le")]  # fmt: skip


@settings(deadline=None, max_examples=40, suppress_health_check=list(HealthCheck))
@given(
    st.sampled_from(["csv", "csv", "jsonl", "parquet"]), st.booleans(), st.sampled_from(",;\t|"),
    st.sampled_from(list(NUMBERS)), st.sampled_from(list(TIMES)), st.sampled_from(list(PACKED)),
    st.sampled_from(ENCODED), st.sampled_from(["\n", "\r\n"]), st.integers(0, 3),
    st.lists(st.sampled_from(["note", "region", "flag"]), max_size=2, unique=True), st.randoms(),
)  # fmt: skip
def test_peculiarities_of_format_and_layout_may_come_together(
    tmp_path_factory, kind, is_long, separator, number, time, packed, encoding, end, titles, extra, random
):
    write, decimal = NUMBERS[number]
    when, step, pattern = TIMES[time]
    rows = [
        {"month": when(i), **dict(zip(STATES, map(write, map(int, row)), strict=True))}
        for i, row in enumerate(COUNTS)
    ]
    if is_long:
        rows = [
            {"month": row["month"], "state": state, "count": row[state]} for row in rows for state in STATES
        ]
    rows = [{**row, **{column: random.choice(["", "x", "é"]) for column in extra}} for row in rows]
    order = random.sample(list(rows[0]), len(rows[0]))
    rows = [{column: row[column] for column in order} for row in rows]
    if random.random() < 0.3:
        random.shuffle(rows)
    keys = {"decimal": decimal, "step": step, "time_format": pattern, "layout": "long" if is_long else None}
    if kind == "csv":
        lines = ["Title"] * titles
        lines += [
            separator.join(f'"{v}"' if separator in v else v for v in line)
            for line in [order, *(row.values() for row in rows)]
        ]
        data = end.join([*lines, *([""] if random.random() < 0.5 else [])]).encode(encoding[0])
        keys |= {"encoding": encoding[1], "skip_lines": titles}
    else:
        data = peculiar.json_lines(rows) if kind == "jsonl" else peculiar.parquet(pl.DataFrame(rows))
    packed = "" if kind == "parquet" else packed
    file = peculiar.Peculiar(
        f"a.{kind}{packed}", PACKED[packed](data), {k: v for k, v in keys.items() if v is not None}
    )
    check_same(Plan.open(config_of(file, written(file, tmp_path_factory.mktemp("mixed")))))


SHEET = [["month", *STATES], *([peculiar.MONTHS[i], *row] for i, row in enumerate(COUNTS.tolist()))]
BOOKS = {
    "a workbook": peculiar.Peculiar("a.xlsx", peculiar.workbook(SHEET)),
    "a sheet by name": peculiar.Peculiar(
        "a.xlsx", peculiar.workbook(SHEET, ("Notes", "Data")), {"sheet": "Data"}
    ),
    "titles above in a workbook": peculiar.Peculiar(
        "a.xlsx", peculiar.workbook(SHEET, above=2), {"skip_lines": 2}
    ),
    "a workbook of text": peculiar.Peculiar(
        "a.xlsx", peculiar.workbook([[f"{v:,}" if isinstance(v, int) else v for v in line] for line in SHEET])
    ),
}


@pytest.mark.parametrize("name", BOOKS)
def test_workbooks_are_read_where_their_reader_is_installed_or_refused_with_its_name(name, tmp_path):
    config = config_of(BOOKS[name], written(BOOKS[name], tmp_path))
    try:
        import fastexcel  # noqa: F401
    except ImportError:
        with pytest.raises(InputError, match=r"workbooks need fastexcel: pip install 'aggmc-beam\[excel\]'"):
            Plan.open(config)
        return
    check_same(Plan.open(config))

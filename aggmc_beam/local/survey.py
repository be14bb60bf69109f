"""A first look at input that does not fit into memory: how much each group holds, and how its rows lie."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from aggmc_beam.sums.jackknife import FEW_REALIZATIONS, Extent
from aggmc_beam.sums.records import Group, Records

#: Records of a realization that stay open at each end of a run of steps.
OPEN = 4


@dataclass
class Survey:
    """Of each realization in each block: how many records, and its first and last step."""

    rows: int = 0

    def __post_init__(self) -> None:
        self._parts: list[pl.DataFrame] = []

    def add(self, records: Records) -> None:
        """Look at the next block."""
        if not len(records):
            return
        frame = pl.DataFrame({"key": records.realization, "time": records.time})
        found = frame.group_by("key").agg(
            number=pl.len(), first=pl.col("time").min(), last=pl.col("time").max()
        )
        key = found["key"].to_numpy()
        group = records.group_of[key]
        columns = [pl.Series(f"group{i}", [g[i] for g in records.groups]).gather(group)
                   for i in range(len(records.groups[0]))]  # fmt: skip
        names = pl.Series("name", list(map(str, records.names[key].tolist())), pl.String)
        block = pl.lit(len(self._parts)).alias("block")
        self._parts.append(found.drop("key").with_columns(names, *columns, block))

    @property
    def _by(self) -> list[str]:
        return [c for c in self._parts[0].columns if c.startswith("group")]

    def extents(self) -> dict[Group, Extent]:
        """How much each group holds, in order of appearance. Of repeated records, one for each step counts."""
        if not self._parts:
            return {}
        by = self._by
        each = pl.concat(self._parts).group_by([*by, "name"], maintain_order=True).agg(
            pl.col("number").sum(), pl.col("first").min(), pl.col("last").max()
        ).with_columns(pl.min_horizontal("number", pl.col("last") - pl.col("first") + 1))  # fmt: skip
        found = each.group_by(by or pl.lit(0).alias("all"), maintain_order=True).agg(
            pl.len().alias("names"), pl.col("number").sum(), pl.col("first").min(), pl.col("last").max()
        )
        return {
            tuple(row[g] for g in by): Extent(
                min(row["names"], FEW_REALIZATIONS), row["number"], row["first"], row["last"]
            )
            for row in found.iter_rows(named=True)
        }

    def open_records(self) -> int:
        """About how many records at most wait for neighbours, if blocks come as they are.

        A realization whose steps come in order, without gaps, keeps a few; else each run of steps in a block does.
        """
        if not self._parts:
            return 0
        by = [*self._by, "name"]
        gaps = pl.col("last") - pl.col("first") + 1 - pl.col("number")
        found = (
            pl.concat(self._parts)
            .sort(*by, "block")
            .with_columns(after=(pl.col("first") > pl.col("last").shift()).over(by).fill_null(True))
            .group_by(by)
            .agg(
                ordered=pl.col("after").all(),
                open=pl.min_horizontal(pl.col("number"), OPEN * (1 + pl.max_horizontal(gaps, 0))).sum(),
                gaps=pl.max_horizontal(gaps, 0).sum(),
                number=pl.col("number").sum(),
            )
        )
        in_order = pl.min_horizontal(pl.col("number"), OPEN * (1 + pl.col("gaps")))
        return int(found.select(pl.when("ordered").then(in_order).otherwise("open").sum()).item())

    def is_apart(self) -> bool:
        """Whether no step of a realization comes in several blocks."""
        if not self._parts:
            return True
        by = [*self._by, "name"]
        found = pl.concat(self._parts).sort(*by, "first")
        return not found.select((pl.col("first") <= pl.col("last").shift()).over(by).any()).item()

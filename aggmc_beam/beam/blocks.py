"""Blocks of records on their way between workers: their bytes, and the keys at which their records meet."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from aggmc_beam.beam import codec
from aggmc_beam.beam.coders import SmallCoder
from aggmc_beam.local.blocks import Place
from aggmc_beam.records import Record
from aggmc_beam.sums.records import Group, Records, joined_records, realization_numbers

#: The kind of the bytes of a block.
BLOCK = 15


@dataclass(frozen=True, eq=False)
class Block:
    """Records, and where those of files come from. Of a long table they are rows: `counts` [n] are those of the
    states with these numbers, `state` [n]."""

    records: Records
    place: Place | None = None
    state: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.records)

    def take(self, at: np.ndarray) -> Block:
        """Some of the records, with no more names than they need."""
        return Block(
            self.records.take(at).without_unused_names(),
            None if self.place is None else self.place.at(at),
            None if self.state is None else self.state[at],
        )


def join_blocks(blocks: Sequence[Block]) -> Block:
    """All records of some blocks: those of files in their order there."""
    if len(blocks) == 1:
        return blocks[0]
    if blocks[0].place is not None:
        blocks = sorted(blocks, key=_first_place)
    places = [b.place for b in blocks if b.place is not None]
    states = [b.state for b in blocks if b.state is not None]
    place = None
    if places:
        place = Place(np.concatenate([p.file for p in places]), np.concatenate([p.row for p in places]))
    records = joined_records([b.records for b in blocks])
    return Block(records, place, np.concatenate(states) if states else None)


def _first_place(block: Block) -> tuple[int, int]:
    assert block.place is not None
    return (int(block.place.file[0]), int(block.place.row[0])) if len(block) else (0, 0)


def spread(block: Block, shards: int) -> Iterator[tuple[int, Block]]:
    """The records by the shard of their realization: all records of a realization have the same."""
    records = block.records
    if not len(records):
        return
    groups = np.array([hash_group(group) for group in records.groups], np.int64)
    of_name = (realization_numbers(records.names) + groups[records.group_of]) % shards
    shard = of_name[records.realization].astype(np.int16)
    order = np.argsort(shard, kind="stable")
    cuts = np.flatnonzero(np.diff(shard[order])) + 1
    for rows in np.split(order, cuts):
        yield int(shard[rows[0]]), block.take(rows)


def hash_group(group: Group) -> int:
    """A number of a group, the same everywhere."""
    return zlib.crc32("\0".join(group).encode())


def records_of(block: Block) -> Iterator[Record]:
    """The records one at a time."""
    r = block.records
    for i, key in enumerate(r.realization.tolist()):
        population = None if r.population is None else float(r.population[i])
        counts = np.asarray(r.counts[i], np.float64)
        yield Record(str(r.names[key]), int(r.time[i]), counts, population, r.groups[int(r.group_of[key])])


def records_as_block(found: Sequence[Record]) -> Records:
    """Records that were read one at a time, as one block.

    >>> records_as_block([Record("a", 3, np.array([1.0, 2.0])), Record("a", 4, np.array([2.0, 1.0]))]).counts.shape
    (2, 2)
    """
    groups = {r.group: 0 for r in found}
    groups = {group: g for g, group in enumerate(groups)}
    keys = {(r.group, r.realization): 0 for r in found}
    keys = {key: k for k, key in enumerate(keys)}
    people = None if found[0].population is None else np.array([r.population for r in found], np.float64)
    return Records(
        np.array([keys[r.group, r.realization] for r in found], np.int64),
        np.array([r.time for r in found], np.int64),
        np.stack([r.counts for r in found]),
        np.array([name for _, name in keys], object),
        np.array([groups[group] for group, _ in keys], np.int64),
        tuple(groups),
        people,
    )


class BlockCoder(SmallCoder):
    """Bytes of blocks."""

    of = Block

    def encode(self, value: Block) -> bytes:
        return encode_block(value)

    def decode(self, encoded: bytes) -> Block:
        return decode_block(encoded)


def encode_block(block: Block) -> bytes:
    records, place = block.records, block.place
    more = [
        records.population,
        records.rows,
        block.state,
        *(() if place is None else (place.file, place.row)),
    ]
    text = records.names.dtype.kind != "i"
    meta = [
        list(map(list, records.groups)),
        list(map(str, records.names.tolist())) if text else None,
        [array is not None for array in more[:3]],
        place is not None,
    ]
    names = () if text else (records.names,)
    arrays = [records.realization, records.time, records.counts, records.group_of, *names]
    return codec.encode(BLOCK, meta, *arrays, *(a for a in more if a is not None))


def decode_block(encoded: bytes) -> Block:
    (groups, text, there, has_place), arrays = codec.decode(encoded, BLOCK, narrow=True)
    realization, time, counts, group_of, *rest = arrays
    names = np.array(text, object) if text is not None else rest.pop(0).astype(np.int64)
    population, rows, state = (rest.pop(0) if one else None for one in there)
    place = Place(rest[0], rest[1].astype(np.int64)) if has_place else None
    records = Records(
        realization.astype(np.int64),
        time.astype(np.int64),
        counts,
        names,
        group_of.astype(np.int64),
        tuple(map(tuple, groups)),
        None if population is None else population.astype(np.float64),
        None if rows is None else rows.astype(np.int64),
    )
    return Block(records, place, None if state is None else state.astype(np.int64))


def narrowed(records: Records) -> Records:
    """With whole counts in as few bytes as hold them."""
    values = records.counts
    if values.dtype.kind not in "iu" or not values.size:
        return records
    low, high = int(values.min()), int(values.max())
    fits = (t for t in (np.int8, np.int16, np.int32) if np.iinfo(t).min <= low and high <= np.iinfo(t).max)
    return replace(records, counts=values.astype(next(fits, np.int64), copy=False))

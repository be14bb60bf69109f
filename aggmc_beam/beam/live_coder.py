"""Bytes of what is remembered between refreshes of flows, forecasts and alarms."""

from __future__ import annotations

import numpy as np

from aggmc_beam.beam import codec
from aggmc_beam.beam.blocks import Block, decode_block, encode_block
from aggmc_beam.beam.coders import SmallCoder
from aggmc_beam.uses.forecast import Forecast
from aggmc_beam.uses.given import Labels
from aggmc_beam.uses.live import Live

#: The kind of these bytes.
LIVE = 20
_PARTS = ("mean", "standard_error", "lower", "upper")


class LiveCoder(SmallCoder):
    """Bytes of `Live`: small, since it holds few records."""

    of = Live

    def encode(self, value: Live) -> bytes:
        names, ahead = list(value.told), list(value.ahead)
        states = list(value.ahead[ahead[0]][0].states) if ahead else []
        level = value.ahead[ahead[0]][0].level if ahead else 0.0
        held = b"" if value.records is None else encode_block(Block(value.records))
        meta = [names, value.floor, value.active, value.times, ahead, states, level, list(value.scores)]
        arrays = [np.frombuffer(held, np.uint8).astype(np.int64), value.surprises]
        arrays += [value.told[name] for name in names]
        for name in ahead:
            made, start = value.ahead[name]
            arrays += [made.time, *(getattr(made, part) for part in _PARTS), start]
        return codec.encode(LIVE, meta, *arrays, *value.scores.values())

    def decode(self, encoded: bytes) -> Live:
        meta, arrays = codec.decode(encoded, LIVE)
        names, floor, active, times, ahead, states, level, scored = meta
        held, surprises, *rest = arrays
        records = decode_block(held.astype(np.uint8).tobytes()).records if len(held) else None
        told = {name: rest.pop(0) for name in names}
        made = {}
        for name in ahead:
            time, mean, error, lower, upper, start = (rest.pop(0) for _ in range(len(_PARTS) + 2))
            labels = Labels.plain(1, int(time[0]))
            made[name] = Forecast(tuple(states), time, mean, error, lower, upper, level, labels), start
        scores = {name: rest.pop(0) for name in scored}
        return Live(records, told, floor, active, surprises, made, scores, times)

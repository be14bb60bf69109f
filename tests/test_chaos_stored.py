"""Damage to saved sums, at every place: it is refused, never estimated from."""

import frames
import pytest

import aggmc_beam as am
from aggmc_beam.chain import Stationary
from aggmc_beam.sums.records import Records
from aggmc_beam.sums.spec import SumSpec
from aggmc_beam.sums.state import AggregationState


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """Small files of every kind that is stored: sums, a state, and what a run saves."""
    y = frames.counts(K=1, T=4)
    state = AggregationState(SumSpec.plan(("a", "b", "c"), Stationary(), am.Binomial(0.5), 200))
    state.add(Records.of_array(y))
    kinds = {am.Sums: am.Sums.of(y), AggregationState: state}
    return {kind.__name__: (kind.from_bytes, value.to_bytes()) for kind, value in kinds.items()}


KINDS = ["Sums", "AggregationState"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_flip_of_any_byte_is_refused(stored, kind):
    read, data = stored[kind]
    assert read(data).to_bytes() == data
    for position in range(len(data)):
        for flip in (0x01, 0x80, 0xFF):
            damaged = bytearray(data)
            damaged[position] ^= flip
            with pytest.raises(am.InputError):
                read(bytes(damaged))


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_cut_at_any_length_or_continued_is_refused(stored, kind):
    read, data = stored[kind]
    for length in range(len(data)):
        with pytest.raises(am.InputError):
            read(data[:length])
    for more in (b"\0", b"\n", data):
        with pytest.raises(am.InputError):
            read(data + more)

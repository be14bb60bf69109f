import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import aggmc_beam as am
from aggmc_beam.sums import run_file, storage
from aggmc_beam.sums.state import AggregationState


@pytest.fixture
def sums():
    y, _ = am.simulate(states=3, steps=6, realizations=4, seed=5)
    return am.Sums.of(y)


def test_sums_survive_saving_and_loading_and_estimate_the_same(sums, tmp_path):
    path = tmp_path / "sums.moments"
    sums.save(path)
    assert [p.name for p in tmp_path.iterdir()] == ["sums.moments"]
    again = am.Sums.load(path)
    assert again.to_bytes() == sums.to_bytes()
    from_file = am.estimate(path, population=100, estimator="mom")
    assert from_file.to_json() == am.estimate(sums, population=100, estimator="mom").to_json()


@given(
    st.lists(
        st.one_of(
            st.lists(st.integers(-(2**62), 2**62)).map(lambda x: np.array(x, np.int64)),
            st.lists(st.one_of(st.floats(), st.integers(-(2**60), 2**60).map(float))).map(
                lambda x: np.array(x, np.float64)
            ),
        ),
        max_size=4,
    ),
    st.booleans(),
)
def test_arrays_come_back_to_the_bit(arrays, deflate):
    given_ = {str(i): a for i, a in enumerate(arrays)}
    with storage.unpacked(storage.pack("demo", {}, given_, deflate), "demo") as (_, found):
        for name, array in given_.items():
            assert found[name].dtype == array.dtype
            assert found[name].tobytes() == array.tobytes()


def test_whole_numbers_take_the_fewest_bytes():
    whole, broken = np.arange(1000.0) % 100, np.arange(1000.0) / 7
    assert len(storage.pack("x", {}, {"a": whole}, deflate=False)) < 1200
    assert len(storage.pack("x", {}, {"a": broken}, deflate=False)) > 8000


@pytest.mark.parametrize("length", [0, 7, 40, -1])
def test_truncated_and_foreign_files_are_refused_by_name(sums, tmp_path, length):
    path = tmp_path / "broken.moments"
    path.write_bytes(sums.to_bytes()[:length])
    with pytest.raises(am.InputError, match="broken.moments"):
        am.Sums.load(path)
    path.write_bytes(b"PAR1" + b"x" * 100)
    with pytest.raises(am.InputError, match="not an aggmc file"):
        am.estimate(path)
    with pytest.raises(am.InputError, match="cannot read.*nowhere"):
        am.Sums.load(tmp_path / "nowhere")


def test_a_flipped_bit_is_found_wherever_it_is(sums, tmp_path):
    path, data = tmp_path / "flipped.moments", sums.to_bytes()
    for place in (8, 16, 20, 400, len(data) - 33, len(data) - 32, len(data) - 1):
        path.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
        for read in (am.Sums.load, am.estimate):
            with pytest.raises(am.InputError, match=r"flipped.moments (is damaged|has format version)"):
                read(path)


@pytest.mark.parametrize("place", [0, storage.PIECE - 1, storage.PIECE, 3 * storage.PIECE])
@pytest.mark.parametrize("value", [np.nan, np.inf, -1e101])
def test_a_number_that_is_no_sum_is_found_wherever_it_is(place, value):
    x = np.ones(3 * storage.PIECE + 1)
    storage.array({"x": x}, "x", "f", None)
    x[place] = value
    with pytest.raises(am.InputError, match="not finite, or too large"):
        storage.array({"x": x}, "x", "f", None)
    x[place] = -9e99  # large, and its square too large
    storage.array({"x": x}, "x", "f", None)


def sealed(header, payload):
    """Bytes with a right checksum, whatever they say."""
    import hashlib

    text = json.dumps(header).encode()
    body = storage._PREFIX.pack(storage.MAGIC, storage.VERSION, len(text)) + text + payload
    return body + hashlib.sha256(body).digest()


@pytest.mark.parametrize(
    ("arrays", "payload", "deflated", "why"),
    [
        ([["x", "f", "<f8", [10**15]]], b"", False, "longer than the file"),
        ([["x", "f", "<f8", [10**15]]], b"x" * 9, True, "longer than the file can hold"),
        ([["x", "f", "<f8", [1]]], b"not deflated", True, "cannot be inflated"),
        ([["x", "f", "|O", [1]]], b"12345678", False, "has type"),
        ([["x", "i", "<f8", [1]]], b"12345678", False, "whole numbers"),
        ([["x", "f", "<f8", [-1]]], b"", False, "shape"),
        ([], b"1", False, "belong to no array"),
    ],
)
def test_headers_that_do_not_fit_their_arrays_are_refused(arrays, payload, deflated, why):
    data = sealed({"kind": "x", "meta": {}, "arrays": arrays, "deflated": deflated}, payload)
    with pytest.raises(am.InputError, match=why), storage.unpacked(data, "x"):
        pass


def test_a_file_of_another_kind_is_refused(sums):
    with pytest.raises(am.InputError, match="holds 'sums', but 'run'"):
        AggregationState.from_bytes(sums.to_bytes())


def test_another_format_is_refused(sums, monkeypatch):
    monkeypatch.setattr(storage, "VERSION", 4)
    newer = sums.to_bytes()
    monkeypatch.setattr(storage, "VERSION", 3)
    with pytest.raises(am.InputError, match="version 4, this release reads 3"):
        am.Sums.from_bytes(newer)


def test_only_plain_numbers_are_stored():
    with pytest.raises(am.InputError, match="float64 or int64"):
        storage.pack("x", {}, {"a": np.array([object()])})


def test_a_failed_write_leaves_the_old_file(sums, tmp_path, monkeypatch):
    path = tmp_path / "kept.moments"
    sums.save(path)
    before = path.read_bytes()
    monkeypatch.setattr("os.replace", lambda *_: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        am.Sums.zero(3).save(path)
    assert path.read_bytes() == before
    assert len(list(tmp_path.iterdir())) == 1


def test_sums_of_small_groups_are_stored_by_halves_and_fractions_as_they_are():
    whole, _ = am.simulate(states=6, steps=8, realizations=20, seed=1)
    for y in (whole, whole / 3):
        sums = am.Sums.of(y)
        again = am.Sums.from_bytes(sums.to_bytes())
        assert again.to_bytes() == sums.to_bytes()
        np.testing.assert_array_equal(again.product, sums.canonical().product)
    stored = run_file.halved(run_file.sums_to_arrays(am.Sums.of(whole)))
    L = len(stored["label"])
    assert "product" not in stored
    assert stored["symmetric"].shape == (L, 2, 21)
    assert stored["lagged"].shape == (L, 2, 6, 6)

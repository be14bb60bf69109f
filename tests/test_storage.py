import hashlib
import os
import threading

import numpy as np
import pytest

import aggmc_beam as am
from aggmc_beam import storage


@pytest.fixture
def digest():
    y, _ = am.simulate(states=3, steps=6, realizations=4, seed=5)
    return am.Digest.of(y)


def test_moments_survive_saving_and_loading(digest, tmp_path):
    path = tmp_path / "sums.moments"
    digest.total.save(path)
    assert am.Moments.load(path) == digest.total
    assert [p.name for p in tmp_path.iterdir()] == ["sums.moments"]


def test_a_digest_survives_saving_and_loading_and_estimates_the_same(digest, tmp_path):
    path = tmp_path / "sums.moments"
    digest.save(path)
    again = am.Digest.load(path)
    assert again.to_bytes() == digest.to_bytes()
    from_file = am.estimate(path, population=100, estimator="mom")
    assert from_file.to_json() == am.estimate(digest, population=100, estimator="mom").to_json()


@pytest.mark.parametrize("length", [0, 7, 40, -1])
def test_truncated_and_foreign_files_are_refused_by_name(digest, tmp_path, length):
    path = tmp_path / "broken.moments"
    path.write_bytes(digest.to_bytes()[:length])
    with pytest.raises(am.InputError, match="broken.moments"):
        am.Digest.load(path)
    path.write_bytes(b"PAR1" + b"x" * 100)
    with pytest.raises(am.InputError, match="not an aggmc file"):
        am.estimate(path)
    with pytest.raises(am.InputError, match="cannot read.*nowhere"):
        am.Moments.load(tmp_path / "nowhere")


@pytest.mark.parametrize("size", [10, 16, 1 << 20])
def test_a_file_is_checked_in_pieces_from_its_first_byte_to_its_last(digest, tmp_path, monkeypatch, size):
    monkeypatch.setattr(storage, "_MIB", size)
    path, data = tmp_path / "pieces.moments", digest.to_bytes()
    path.write_bytes(data)
    assert am.Digest.load(path).to_bytes() == data
    for place in (16, 400, len(data) - 33, len(data) - 32, len(data) - 1):
        path.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
        with pytest.raises(am.InputError, match=r"pieces.moments is damaged"):
            am.Digest.load(path)


def test_what_is_no_ordinary_file_is_read_to_its_end(digest, tmp_path):
    path, data = tmp_path / "pipe", digest.to_bytes()
    os.mkfifo(path)
    writer = threading.Thread(target=path.write_bytes, args=(data,))
    writer.start()
    assert am.Digest.load(path).to_bytes() == data
    writer.join()


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


def test_damage_is_told_before_what_it_led_to(digest, tmp_path):
    data = bytearray(digest.to_bytes())
    data[20] ^= 1  # in the header, which is not JSON any more
    path = tmp_path / "flipped.moments"
    path.write_bytes(data)
    for read in (am.Digest.load, am.Moments.load, am.estimate):
        with pytest.raises(am.InputError, match=r"flipped.moments is damaged: its checksum"):
            read(path)


def test_a_file_of_another_kind_is_refused(digest):
    with pytest.raises(am.InputError, match="holds 'digest', but 'moments'"):
        am.Moments.from_bytes(digest.to_bytes())


def test_a_newer_format_is_refused(digest, monkeypatch):
    monkeypatch.setattr(storage, "VERSION", 3)
    newer = digest.to_bytes()
    monkeypatch.setattr(storage, "VERSION", 2)
    with pytest.raises(am.InputError, match="version 3, this release reads 1 and 2"):
        am.Digest.from_bytes(newer)


def test_the_first_format_is_still_read(digest):
    """Its checksum is that of all bytes at once."""
    body = bytearray(digest.to_bytes()[:-32])
    body[8:12] = (1).to_bytes(4, "little")
    old = bytes(body) + hashlib.sha256(body).digest()
    assert am.Digest.from_bytes(old).to_bytes() == digest.to_bytes()
    with pytest.raises(am.InputError, match="damaged"):
        am.Digest.from_bytes(old[:400] + bytes([old[400] ^ 1]) + old[401:])


def test_only_plain_numbers_are_stored():
    with pytest.raises(am.InputError, match="float64 or int64"):
        storage.pack("x", {}, {"a": np.array([object()])})


def test_a_failed_write_leaves_the_old_file(digest, tmp_path, monkeypatch):
    path = tmp_path / "kept.moments"
    digest.save(path)
    before = path.read_bytes()
    monkeypatch.setattr("os.replace", lambda *_: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        am.Moments.zero(3).save(path)
    assert path.read_bytes() == before
    assert len(list(tmp_path.iterdir())) == 1

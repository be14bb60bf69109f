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
    monkeypatch.setattr(storage, "VERSION", 2)
    newer = digest.to_bytes()
    monkeypatch.setattr(storage, "VERSION", 1)
    with pytest.raises(am.InputError, match="version 2, this release reads 1"):
        am.Digest.from_bytes(newer)


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

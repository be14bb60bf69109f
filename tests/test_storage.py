import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import aggmc_beam as am
from aggmc_beam.chain import as_chain
from aggmc_beam.clock import Clock
from aggmc_beam.sums import run_file, storage
from aggmc_beam.sums.records import Records
from aggmc_beam.sums.spec import SumSpec
from aggmc_beam.sums.state import AggregationState
from aggmc_beam.zones import Zone


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


def saved_state(population=True):
    """Two columns of groups, some with equal names, realizations with populations, and text among their names."""
    spec = SumSpec.plan(("a", "b"), as_chain(am.Cycle(2)), am.Binomial(0.5), None, population,
                        group_by=("from", "to"), clock=Clock("1h", 0, Zone("Europe/Berlin")))  # fmt: skip
    state = AggregationState(spec)
    rng = np.random.default_rng(1)
    for g, group in enumerate((("x", "x"), ("x", "y"))):
        key, time = np.repeat(np.arange(3), 8), np.tile(np.arange(8), 3)
        N = np.array([20.0, 20.0, 30.0])[key] if population else None
        names = np.array(["0", "r", f"s{g}"], object)
        state.add(Records(key, time, rng.integers(0, 9, (24, 2)), names, np.zeros(3, np.int64), (group,), N))
    return state


def stored(state):
    with storage.unpacked(state.to_bytes(), run_file.RUN) as (meta, arrays):
        return json.loads(json.dumps(meta)), {name: np.array(array) for name, array in arrays.items()}


def test_a_state_with_all_that_it_may_hold_comes_back_as_it_was():
    for population in (True, False):
        state = saved_state(population)
        again = AggregationState.from_bytes(state.to_bytes())
        assert again.to_bytes() == state.to_bytes()
        assert again.spec == state.spec
        assert again.groups == [("x", "x"), ("x", "y")]
        for one in (state, again):
            one.add(Records(
                np.zeros(2, np.int64), np.arange(8, 10), np.ones((2, 2)), np.array(["0"], object),
                np.zeros(1, np.int64), (("x", "x"),), np.full(2, 20.0) if population else None))  # fmt: skip
        assert again.to_bytes() == state.to_bytes()


def test_a_group_whose_records_were_all_refused_has_no_rule_yet():
    state = saved_state(False)
    gone = Records(np.zeros(1, np.int64), np.zeros(1, np.int64), np.full((1, 2), np.nan), np.array(["0"], object),
                   np.zeros(1, np.int64), (("z", "z"),))  # fmt: skip
    assert len(state.add(gone).refused) == 1
    again = AggregationState.from_bytes(state.to_bytes())
    assert again.groups == state.groups
    assert again.rules == state.rules


def _set(name, at, value):
    def change(meta, arrays):
        arrays[name][at] = value

    return change


def _meta(**more):
    return lambda meta, arrays: meta.update(more)


FORGED = {
    "a weight without a pair": (_set("weight", (0, 1), 0.0), "weights do not fit"),
    "a negative inverse weight": (_set("inverse_weight", 0, -1.0), "weights do not fit"),
    "too many records": (_set("number", (0, 0), 2**53), "more records than there can be, or fewer"),
    "fewer records than none": (_set("number", (0, 0), -1), "more records than there can be, or fewer"),
    "too many realizations": (_set("realizations", 0, -(2**53)), "more records than there can be"),
    "a label below none": (_set("label", (0, 0), -1), "not those of any groups"),
    "a replicate below none": (_set("label", (0, 2), -1), "not those of any groups"),
    "labels out of order": (_set("label", (0, 1), 1), "not those of any groups"),
    "a label of no group": (_set("label", (-1, 0), 2), "groups or realizations that it does not name"),
    "too many duplicates": (lambda m, a: a.update(counts=np.array([[0, 0, 2**53, 0, 0, 0]])), "than there can be"),
    "a rule below none": (_set("rules", (0, 0), -1), "jackknife groups"),
    "a rule of no realizations": (_set("rules", (0, 1), 0), "jackknife groups"),
    "a rule of no steps": (_set("rules", (0, 2), 0), "jackknife groups"),
    "a rule that starts too late": (_set("rules", (0, 3), 2**53), "jackknife groups"),
    "groups twice": (_meta(groups=[["x", "x"], ["x", "x"]]), "groups are not all different"),
    "groups of no names": (_meta(groups=[["x", 1], ["x", "y"]]), "not a list of names"),
    "a realization of no group": (_set("group_of", 0, 2), "of groups that it does not name"),
    "a realization of a group below none": (_set("group_of", 0, -1), "of groups that it does not name"),
    "realizations twice": (_meta(names=["0", "0", "s0", "0", "r", "s1"]), "realizations are not all different"),
    "a population below none": (_set("population", 0, -1.0), "populations are not"),
    "a population too large": (_set("population", 0, 1e30), "populations are not"),
    "shares without populations": (_meta(populations="one"), "knows no populations"),
    "states twice": (_meta(states=["a", "a"]), "states are not all different"),
    "no states": (_meta(states=[]), "not that of a run"),
    "columns twice": (_meta(group_by=["from", "from"]), "columns of groups are not all different"),
    "a column without a name": (_meta(realization=3), "has no name"),
    "a step of none": (_meta(clock=[0, 0]), "not that of a run"),
    "a step of a word": (_meta(clock=["often", 0]), "often"),
    "an origin of text": (_meta(clock=["1h", "0"]), "not that of a run"),
    "two zones": (_meta(clock=["1h", 0, "UTC", "UTC"]), "time zone is none"),
    "a zone of a number": (_meta(clock=["1h", 0, 5]), "time zone is none"),
    "no replicates": (_meta(replicates=0), "not that of a run"),
    "a block of text": (_meta(block="1"), "not that of a run"),
    "a population of none": (_meta(population=0), "not that of a run"),
    "a population of all": (_meta(population=1e30), "not that of a run"),
    "a rule of populations that is none": (_meta(populations="some"), "not that of a run"),
    "what is undone is no yes or no": (_meta(undo=1), "not that of a run"),
    "gaps that are none": (_meta(gaps="some"), "not that of a run"),
}  # fmt: skip


@pytest.mark.parametrize("name", FORGED)
def test_a_state_that_no_data_can_have_is_refused_though_its_checksum_is_right(name):
    change, why = FORGED[name]
    meta, arrays = stored(saved_state())
    assert "weight" in arrays
    change(meta, arrays)
    with pytest.raises(am.InputError, match=why):
        AggregationState.from_bytes(storage.pack(run_file.RUN, meta, arrays))


@pytest.mark.parametrize(
    ("S", "why"), [(0, "number of states is 0"), (True, "number of states"), (2.0, "states is 2.0")]
)
def test_sums_of_no_number_of_states_are_refused(S, why, sums):
    with pytest.raises(am.InputError, match=why):
        am.Sums.from_bytes(storage.pack(run_file.SUMS, {"S": S}, run_file.sums_to_arrays(sums)))

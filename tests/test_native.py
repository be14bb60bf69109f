"""Compiled loops against the definition, and everything that uses them against numpy."""

import shutil
import subprocess
import sys
import sysconfig
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from loops import ROADS, numpy_alone

from aggmc_beam.native import compiled
from aggmc_beam.panelsums import PanelSums
from aggmc_beam.stretches import Steps, heads_of

CC = (sysconfig.get_config_var("CC") or "cc").split()[0]
#: Whole numbers next to the limits of 16, 32 and 64 bits.
EXTREMES = [side * 2**bits - off for side in (1, -1) for bits in (15, 31, 63) for off in (0, 1)]
needs_compiled = pytest.mark.skipif(compiled is None, reason="the package was installed without a compiler")


@pytest.mark.skipif(shutil.which(CC) is None, reason=f"there is no compiler ({CC})")
def test_loops_are_compiled_where_there_is_a_compiler():
    headers = sysconfig.get_path("include")
    code = "from aggmc_beam.native import compiled; print(compiled is not None)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "True\n", f"compiling failed; are Python's headers in {headers}?"


def test_compiled_loops_can_be_switched_off(monkeypatch):
    monkeypatch.setenv("AGGMC_NATIVE", "0")
    code = "from aggmc_beam.native import compiled; print(compiled)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "None\n"


def brute(z, lags):
    """Sums of products from the definition."""
    rows = z.tolist()
    found = np.zeros((lags, z.shape[1], z.shape[1]), object)
    for lag in range(lags):
        for left, right in zip(rows, rows[lag:], strict=False):
            found[lag] += [[a * b for b in right] for a in left]
    return found


@st.composite
def lines(draw):
    """Realizations on a line, as records in some order, and what `sum_lines` is told of them."""
    S, R = draw(st.integers(1, 9)), draw(st.integers(1, 5))
    length = draw(st.lists(st.integers(0, 45), min_size=R, max_size=R))
    each = draw(st.booleans())
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    centre = rng.integers(-300, 300, S)
    most = draw(st.sampled_from([3, 100, 4095]))
    kind = draw(st.sampled_from([np.int8, np.int16, np.int32]))
    if kind == np.int32:
        centre += draw(st.sampled_from([0, 10**6, -(2**30) + 300]))
    place = np.concatenate([[0], np.cumsum(np.array(length) + 2)])
    n = sum(length)
    record = np.full(place[-1], -1)
    shuffled = rng.permutation(n) if each else np.arange(n)
    for r, m in enumerate(length):
        record[place[r] : place[r] + m] = shuffled[sum(length[:r]) : sum(length[: r + 1])]
    values = (centre + rng.integers(-most, most + 1, (n, S))).astype(kind)
    if kind == np.int8:
        values = rng.integers(-128, 128, (n, S), kind)
    if each:
        record[rng.random(len(record)) < 0.1] = -1
    first = rng.integers(0, 4, R)
    order = draw(st.sampled_from("CF"))
    return np.asarray(values, order=order), record, each, place, first, centre


def sum_line(values, record, each, place, first, centre, products, by_step):
    """As `sum_lines`, of one."""
    cuts, steps = np.array([0, len(first)]), None if by_step is None else by_step[None]
    return compiled.sum_lines(values, record, each, place, first, cuts, centre[None], products[None], steps)


@needs_compiled
@given(lines(), st.integers(1, 3), st.sampled_from([np.int32, np.int64]), st.data())
def test_sums_of_lines_are_those_of_the_definition(made, lags, kind, data):
    values, record, each, place, first, centre = made
    S, R = values.shape[1], len(first)
    cuts = [0, *sorted(data.draw(st.sets(st.integers(1, R - 1)) if R > 1 else st.just([]))), R]
    # Each line has another one, where that leaves values within what loops take.
    centres = np.array([centre + (i if abs(values - centre).max(initial=0) < 4000 else 0) for i in range(R)])
    expected, by_step = [], np.zeros((len(cuts) - 1, 60, S))
    for i, (a, b) in enumerate(pairwise(cuts)):
        at = record[place[a] : place[b]]
        z = np.zeros((len(at), S), np.int64)
        z[at >= 0] = values[at[at >= 0]] - centres[i]
        expected.append(brute(z, lags).astype(float))
        for r in range(a, b):
            m, start = place[r + 1] - place[r] - 2, place[r] - place[a]
            by_step[i, first[r] : first[r] + m] += z[start : start + m]
    told = record.astype(kind)
    if not each:
        told = np.cumsum(np.concatenate([[0], np.diff(place) - 2]))[:-1].astype(kind)
    products, steps = np.full((len(by_step), lags, S, S), np.nan), np.full_like(by_step, np.nan)
    given = values, told, each, place, first, np.array(cuts), centres[: len(by_step)]
    assert compiled.sum_lines(*given, products, steps)
    np.testing.assert_array_equal(products, expected)
    np.testing.assert_array_equal(steps, by_step)


def long_line(most, n=5000, S=5):
    """One long realization, whose products overflow 32 bits many times over."""
    rng = np.random.default_rng(0)
    values = rng.choice([-most, most, most - 1], (n, S)).astype(np.int16)
    return (
        values,
        np.zeros(1, np.int64),
        False,
        np.array([0, n + 2]),
        np.zeros(1, np.int64),
        np.zeros(S, np.int64),
    )


@needs_compiled
@pytest.mark.parametrize("most", [1, 1000, 4095])
@pytest.mark.parametrize("S", [1, 5, 60])
def test_long_lines_of_large_values_do_not_overflow(most, S):
    given = long_line(most, S=S)
    products = np.empty((3, S, S))
    assert sum_line(*given, products, None)
    y = given[0].astype(np.int64)
    expected = [y[: len(y) - lag].T @ y[lag:] for lag in range(3)]
    np.testing.assert_array_equal(products, expected)


@needs_compiled
@pytest.mark.parametrize("order", "CF")
def test_a_line_may_be_far_longer_than_what_is_held_at_once(order):
    n = 3_000_000
    values, one = np.ones((n, 2), np.int16, order), np.zeros(1, np.int64)
    products = np.empty((3, 2, 2))
    assert sum_line(values, one, False, np.array([0, n + 2]), one, np.zeros(2, np.int64), products, None)
    np.testing.assert_array_equal(products[:, 0, 1], [n, n - 1, n - 2])


@needs_compiled
@pytest.mark.parametrize("order", "CF")
@pytest.mark.parametrize("longest", [1, 3, 12, 17, 40])
def test_many_short_realizations_are_summed_wherever_a_block_ends(longest, order):
    rng = np.random.default_rng(longest)
    length = rng.integers(0, longest + 1, 20_000 // longest)
    head = np.concatenate([[0], np.cumsum(length)])
    shuffled = rng.permutation(len(length))
    values = np.asarray(rng.integers(-4000, 4000, (head[-1], 3)), np.int16, order)
    z, by_step, at = np.zeros((head[-1] + 2 * len(length), 3), np.int64), np.zeros((longest, 3)), 0
    for r in shuffled:
        z[at : at + length[r]] = values[head[r] : head[r] + length[r]]
        by_step[: length[r]] += values[head[r] : head[r] + length[r]]
        at += length[r] + 2
    place = np.concatenate([[0], np.cumsum(length[shuffled] + 2)])
    products, steps = np.full((3, 3, 3), np.nan), np.full_like(by_step, np.nan)
    first = np.zeros_like(length)
    assert sum_line(values, head[:-1][shuffled], False, place, first, np.zeros(3, int), products, steps)
    np.testing.assert_array_equal(products, [z[: len(z) - lag].T @ z[lag:] for lag in range(3)])
    np.testing.assert_array_equal(steps, by_step)


@needs_compiled
def test_values_of_other_realizations_do_not_matter():
    values = np.asarray([[5], [6], [32_000], [-32_000]], np.int16, "F").repeat(20, 0)
    told = np.array([20, 0]), False, np.array([0, 22, 44]), np.zeros(2, np.int64), np.array([5])
    products = np.empty((1, 1, 1))
    assert sum_line(values, *told, products, None)
    assert products.item() == 20


@needs_compiled
def test_values_that_are_too_large_are_refused():
    values, *rest = long_line(10)
    for large in (4096, -4097, 32000):
        values[-1, -1] = large
        assert not sum_line(values, *rest, np.empty((3, 5, 5)), None)
    far = np.full(5, 2**31)
    assert not sum_line(values, *rest[:-1], far, np.empty((3, 5, 5)), None)
    wide = np.full((1, 1), -(2**31), np.int32)
    one = np.array([0, 3])
    for centre in (2**30, -(2**30)):
        told = one[:1], False, one, one[:1], np.array([centre])
        assert not sum_line(wide, *told, np.empty((1, 1, 1)), None)


@needs_compiled
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("values", np.zeros((4, 2))),
        ("values", np.zeros((4, 2), np.int64)),
        ("values", np.zeros(4, np.int16)),
        ("values", np.zeros((4, 0), np.int16)),
        ("record", np.array([1])),
        ("record", np.array([-1])),
        ("record", np.array([0, 0])),
        ("record", np.array([0], np.int16)),
        ("place", np.array([0, 7])),
        ("place", np.array([0, 1])),
        ("place", np.array([1, 6])),
        ("place", np.array([0])),
        ("place", np.array([0, 2**62])),
        ("first", np.array([1])),
        ("first", np.array([-1])),
        ("first", np.array([2**62])),
        ("cuts", np.array([0])),
        ("cuts", np.array([1, 1])),
        ("cuts", np.array([0, 2])),
        ("cuts", np.array([0, 0, 1])),
        ("cuts", np.array([0, 2, 1])),
        ("centre", np.zeros(2, np.int64)),
        ("centre", np.zeros((1, 3), np.int64)),
        ("centre", np.zeros((2, 2), np.int64)),
        ("products", np.zeros((1, 3, 2, 3))),
        ("products", np.zeros((1, 4, 2, 2))),
        ("products", np.zeros((2, 3, 2, 2))),
        ("products", np.zeros((1, 3, 2, 2), np.int64)),
        ("by_step", np.zeros((1, 4, 3))),
        ("by_step", np.zeros((1, 3, 2))),
        ("by_step", np.zeros((2, 4, 2))),
    ],
)
def test_arrays_that_do_not_fit_each_other_are_an_error(name, value):
    told = {
        "values": np.zeros((4, 2), np.int16),
        "record": np.array([0]),
        "each": False,
        "place": np.array([0, 6]),
        "first": np.array([0]),
        "cuts": np.array([0, 1]),
        "centre": np.zeros((1, 2), np.int64),
        "products": np.zeros((1, 3, 2, 2)),
        "by_step": np.zeros((1, 4, 2)),
    }
    assert compiled.sum_lines(*told.values())
    with pytest.raises((TypeError, ValueError)):
        compiled.sum_lines(*(told | {name: value}).values())


@needs_compiled
def test_a_record_beyond_the_values_is_an_error():
    told = np.array([0, 3]), np.array([0]), np.zeros(1, np.int64), np.zeros((1, 1, 1)), None
    values = np.zeros((1, 1), np.int16)
    assert sum_line(values, np.array([0, -1, -1]), True, *told)
    with pytest.raises(ValueError, match="fit"):
        sum_line(values, np.array([1, -1, -1]), True, *told)


@needs_compiled
@given(lines(), st.sampled_from([np.int32, np.int64]))
def test_sums_of_records_without_a_neighbour_are_those_of_the_definition(made, kind):
    values, record, _, place, first, centre = made
    sums, number = np.zeros((4, 60, values.shape[1])), np.zeros((5, 60))
    for r, start in enumerate(place[:-1]):
        for p in range(start, place[r + 1] - 2):
            step = first[r] + p - start
            if record[p] < 0:
                continue
            number[0, step] += 1
            for k, q in enumerate((p + 1, p - 1, p + 2, p - 2)):
                if not 0 <= q < len(record) or record[q] < 0:
                    number[k + 1, step] += 1
                    sums[k, step] += values[record[p]].astype(np.int64) - centre
    found, numbers = np.full_like(sums, np.nan), np.full_like(number, np.nan)
    compiled.sum_lone(values, record.astype(kind), place, first, centre, found, numbers)
    np.testing.assert_array_equal(found, sums)
    np.testing.assert_array_equal(numbers, number)


@needs_compiled
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("values", np.zeros((4, 2), np.int64)),
        ("values", np.zeros((2, 2), np.int16)),
        ("record", np.zeros(5, np.int64)),
        ("record", np.zeros(6, np.int16)),
        ("place", np.array([0, 7])),
        ("place", np.array([0, 6, 6])),
        ("place", np.array([1, 6])),
        ("first", np.array([1])),
        ("first", np.array([-1])),
        ("centre", np.zeros(3, np.int64)),
        ("sums", np.zeros((3, 4, 2))),
        ("sums", np.zeros((4, 3, 2))),
        ("sums", np.zeros((4, 4, 3))),
        ("number", np.zeros((4, 4))),
        ("number", np.zeros((5, 3))),
    ],
)
def test_lone_records_in_arrays_that_do_not_fit_each_other_are_an_error(name, value):
    told = {
        "values": np.zeros((4, 2), np.int16),
        "record": np.array([0, 1, 2, 3, -1, -1]),
        "place": np.array([0, 6]),
        "first": np.array([0]),
        "centre": np.zeros(2, np.int64),
        "sums": np.zeros((4, 4, 2)),
        "number": np.zeros((5, 4)),
    }
    compiled.sum_lone(*told.values())
    with pytest.raises((TypeError, ValueError)):
        compiled.sum_lone(*(told | {name: value}).values())


@needs_compiled
@given(
    st.sampled_from([np.int8, np.int16, np.int32, np.int64]),
    st.sampled_from([np.int16, np.int32]),
    st.lists(st.integers(-100, 100), max_size=40),
    st.sampled_from([0, *EXTREMES]),
)  # fmt: skip
def test_numbers_are_written_in_fewer_bytes_if_they_fit(kind, fewer, numbers, extreme):
    limits = np.iinfo(kind)
    values = np.array([*numbers, min(max(extreme, limits.min), limits.max)], kind)
    out = np.zeros(len(values), fewer)
    fits = np.iinfo(fewer).min <= values.min() and values.max() <= np.iinfo(fewer).max
    assert compiled.narrow(values, out) == fits
    if fits:
        np.testing.assert_array_equal(out, values)


@needs_compiled
@given(
    st.integers(1, 200), st.integers(1, 7), st.integers(1, 4), st.sampled_from("CF"),
    st.sampled_from([np.int8, np.int16, np.int32, np.int64]),
)  # fmt: skip
def test_records_are_laid_out_where_they_belong(n, S, each, order, kind):
    rng = np.random.default_rng(n)
    values = np.asarray(rng.integers(-99, 99, (n * each, S)), kind, order=order)
    start = rng.permutation(n) * each
    out = np.zeros((n * each + 1, S), kind)
    compiled.lay_out(values, start, out)
    expected = np.zeros_like(out)
    for k, row in enumerate(values):
        expected[start[k // each] + k % each] = row
    np.testing.assert_array_equal(out, expected)
    with pytest.raises(ValueError, match="fit"):
        compiled.lay_out(values[:1], np.array([len(out)]), out)


@needs_compiled
def test_numbers_that_cannot_be_written_are_an_error():
    with pytest.raises(ValueError, match="fit"):
        compiled.narrow(np.zeros(3, np.int64), np.zeros(2, np.int16))
    with pytest.raises(ValueError, match="fit"):
        compiled.narrow(np.zeros(3, np.int64), np.zeros(3, np.int64))
    with pytest.raises(TypeError, match="values must be"):
        compiled.narrow(np.zeros(3, np.uint64), np.zeros(3, np.int16))
    with pytest.raises(ValueError, match="contiguous"):
        compiled.narrow(np.zeros(6, np.int64)[::2], np.zeros(3, np.int16))


@needs_compiled
@pytest.mark.parametrize("kind", [np.int8, np.int16, np.int32, np.int64])
@given(
    numbers=st.lists(st.integers(-2, 2), max_size=12),
    size=st.integers(1, 9),
    odd=st.none() | st.integers(0, 30),
)
def test_stretches_have_one_number_each_or_not(kind, numbers, size, odd):
    values = np.repeat(np.array(numbers, kind), size)[: max(0, len(numbers) * size - 1)]
    if odd is not None and odd < len(values):
        values[odd] += 1
    stretches = [set(values[a : a + size].tolist()) for a in range(0, len(values), size)]
    out = np.zeros(len(stretches), kind)
    assert compiled.firsts(values, size, out) == all(len(s) == 1 for s in stretches)
    np.testing.assert_array_equal(out, values[::size])
    for wrong in (np.zeros(len(out) + 1, kind), np.zeros(len(out), np.int16 if kind == np.int8 else np.int8)):
        with pytest.raises(ValueError, match="fit"):
            compiled.firsts(values, size, wrong)


@needs_compiled
def test_bytes_repeat_or_not():
    assert compiled.repeats(b"abcabcab", 3)
    assert not compiled.repeats(b"abcabcac", 3)
    assert compiled.repeats(b"ab", 3)
    assert compiled.repeats(b"", 1)
    with pytest.raises(ValueError, match="something"):
        compiled.repeats(b"ab", 0)


@needs_compiled
def test_lines_that_cannot_be_read_are_an_error():
    out = np.zeros(1, np.int64)
    assert compiled.parse_lines(b"a7\n", [b"a", b"\n"], [out])
    assert out.tolist() == [7]
    for text, around, to in (
        (b"a7", [b"a", b"\n"], [out]),
        (b"", [b"a", b"\n"], [out]),
        (b"a7\n", [b"a", b""], [out]),
        (b"a7\n", [b"a", b"\n"], [out, out]),
        (b"a7\n", [b"a", b"\n"], [None]),
        (b"a7\n", [], []),
        (b"a7 7\n", [b"a", b" ", b"\n"], [out, np.zeros(2, np.int64)]),
        (b"a7\n", [b"a", b"\n"], [np.zeros(1, np.int16)]),
    ):
        with pytest.raises(ValueError, match=r"must|fit"):
            compiled.parse_lines(text, around, to)
    with pytest.raises(TypeError):
        compiled.parse_lines(b"a7\n", ["a", "\n"], [out])
    with pytest.raises(TypeError):
        compiled.parse_lines(b"a7\n", [b"a", b"\n"], [np.zeros(1)])


@needs_compiled
@pytest.mark.parametrize("most", [50, 4000, 6000, 40_000, 2**40], ids=str)
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("missing", [0, 0.1, 0.7])
@pytest.mark.parametrize("shuffle", [False, True], ids=["in order", "shuffled"])
def test_sums_are_the_same_to_the_last_bit_without_compiled_loops(most, order, missing, shuffle):
    rng = np.random.default_rng(3)
    seen = rng.random((40, 70)) >= missing
    key, time = np.nonzero(seen)
    values = rng.integers(-most // 9, most, (len(key), 6))
    by = rng.permutation(len(key)) if shuffle else np.arange(len(key))

    def digest(kind):
        total = PanelSums(6, 7, 0, 70)
        assert total.add(key[by], time[by], np.asarray(values[by], kind, order), lambda k: k % 7)
        return total.digest.to_bytes()

    quick, kinds = digest(np.int64), [np.int64, np.int32, np.int8]
    for kind in [kind for kind in kinds if values.max() <= np.iinfo(kind).max]:
        assert digest(kind) == quick
        with numpy_alone():
            assert digest(kind) == quick


@needs_compiled
@pytest.mark.parametrize("kind", [np.int8, np.int16, np.int32, np.int64])
@given(st.lists(st.tuples(st.integers(-3, 3), st.integers(1, 600)), min_size=1, max_size=8))
def test_stretches_begin_where_a_number_differs_from_the_one_before(kind, runs):
    numbers = np.repeat(*np.array(runs, np.int64).T).astype(kind)
    right = [i for i in range(len(numbers)) if i == 0 or numbers[i] != numbers[i - 1]]
    out = np.empty(len(runs), np.int64)
    assert out[: compiled.heads(numbers, out)].tolist() == right
    assert compiled.heads(numbers, out[: len(right) - 1]) == -1
    expected = right if 2 * (len(right) - 1) <= len(numbers) - 1 else None
    found = heads_of(numbers)
    assert (None if found is None else found.tolist()) == expected
    with numpy_alone():
        again = heads_of(numbers)
    assert (None if again is None else again.tolist()) == expected


@pytest.mark.parametrize("road", ROADS)
@given(st.lists(st.lists(st.sampled_from([-(2**63), -1, 0, 1, 2**62, 2**62 + 1]), min_size=1), min_size=1))
def test_bounds_and_order_of_stretches_are_those_of_each(road, stretches):
    heads = np.cumsum([0] + [len(s) for s in stretches[:-1]])
    with ROADS[road]():
        found = Steps.of(np.array([t for s in stretches for t in s], np.int64), heads)
    assert found.first.tolist() == [min(s) for s in stretches]
    assert found.last.tolist() == [max(s) for s in stretches]
    assert found.back == sum(b < a for s in stretches for a, b in pairwise(s))
    assert found.level == sum(b == a for s in stretches for a, b in pairwise(s))


@needs_compiled
@pytest.mark.parametrize("heads", [[0, 0], [1, 3], [-1, 1], [2, 1]])
def test_stretches_that_are_empty_or_elsewhere_are_refused(heads):
    two = np.zeros(2, np.int64)
    with pytest.raises(ValueError, match="do not fit"):
        compiled.bounds(np.zeros(3, np.int64), np.array(heads), two, two.copy())


@needs_compiled
def test_means_are_rounded_as_numpy_rounds_them():
    rng = np.random.default_rng(5)
    sums, centre = rng.normal(size=(40, 7)), rng.normal(size=7)
    number, out = rng.integers(0, 5, 40).astype(float), np.empty((40, 7))
    compiled.means(sums, number, centre, out)
    right = (number[:, None] * centre + sums) / np.maximum(number, 1)[:, None]
    np.testing.assert_array_equal(out, right)
    with pytest.raises(ValueError, match="do not fit"):
        compiled.means(sums, number[1:], centre, out)
    with pytest.raises(TypeError):
        compiled.means(sums.astype(int), number, centre, out)


@needs_compiled
def test_as_many_changes_within_stretches_as_a_byte_has_values_are_noticed():
    numbers = np.tile(np.array([0, 1], np.int8), 128)
    numbers = np.append(numbers, [0, 0]).astype(np.int8)  # 256 changes
    assert not compiled.firsts(numbers, len(numbers), np.empty(1, np.int8))

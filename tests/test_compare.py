"""Differences of two matrices: right on average, right under no difference, matched by name."""

from dataclasses import replace

import numpy as np
import pytest

import aggmc_beam as am
from aggmc_beam.printing import WIDTH, width
from aggmc_beam.uses.compare import holm

P, Q = (
    [[0.8, 0.15, 0.05], [0.1, 0.8, 0.1], [0.3, 0.1, 0.6]],
    [[0.5, 0.45, 0.05], [0.1, 0.8, 0.1], [0.3, 0.1, 0.6]],
)
STATES = ["a", "b", "c"]


def estimate(matrix, seed, realizations=20, **options):
    y, _ = am.simulate(
        matrix, steps=60, realizations=realizations, population=300, noise=am.Binomial(0.5), seed=seed
    )
    return am.estimate(y, STATES, noise=am.Binomial(0.5), population=300, **options)


def test_the_difference_and_its_error_are_those_of_the_definition():
    a, b = estimate(P, 1), estimate(Q, 2)
    found = am.compare(a, b)
    np.testing.assert_array_equal(found.difference, b.transition_matrix - a.transition_matrix)
    np.testing.assert_allclose(found.standard_error**2, a.standard_error**2 + b.standard_error**2)
    assert (found.degrees >= min(a.degrees, b.degrees) - 1e-9).all()
    assert (found.degrees <= a.degrees + b.degrees + 1e-9).all()
    lower, upper = found.interval()
    assert ((lower <= found.difference) & (found.difference <= upper)).all()
    assert found.p_value < 0.01
    assert found.p_values[0, 1] < 0.05 < found.p_values[2, 2]


def test_without_a_difference_few_are_found_and_intervals_hold_zero():
    found = [am.compare(estimate(P, 100 + k, 10), estimate(P, 200 + k, 10)) for k in range(12)]
    assert np.mean([c.p_value < 0.05 for c in found]) <= 0.34
    assert np.mean([np.nanmin(c.p_values) < 0.05 for c in found]) <= 0.34
    inside = [((lower <= 0) & (upper >= 0)).mean() for lower, upper in (c.interval() for c in found)]
    assert np.mean(inside) > 0.86


def test_holm_is_that_of_the_textbook():
    assert holm(np.array([0.01, 0.02, 0.9, np.nan])).tolist()[:3] == pytest.approx([0.03, 0.04, 0.9])
    assert holm(np.array([0.5, 0.6])).tolist() == [1.0, 1.0]
    assert np.isnan(holm(np.array([np.nan]))).all()


def test_states_in_another_order_are_matched():
    a, b = estimate(P, 1), estimate(P, 1)
    k = [2, 0, 1]
    turned = replace(
        b,
        states=tuple(np.array(STATES)[k]),
        stationary=b.stationary[k],
        baselines={},
        **{
            name: getattr(b, name)[np.ix_(k, k)]
            for name in ("transition_matrix", "standard_error", "sampling", "differences", "disagreement")
        },
    )
    assert np.abs(am.compare(a, turned).difference).max() == 0
    with pytest.raises(am.InputError, match="the two have other states"):
        am.compare(a, replace(b, states=("a", "b", "x")))


def test_what_constraints_fix_in_both_has_no_error_and_no_p_value():
    rules = am.Constraints(forbidden=[("a", "c")])
    found = am.compare(estimate(P, 1, constraints=rules), estimate(P, 2, constraints=rules))
    assert np.isnan(found.p_values[0, 2])
    assert np.isfinite(found.p_values[1]).all()
    assert found.to_dict()["entries"][2]["p_value"] is None


def test_cells_and_groups_are_matched_by_name_and_what_is_alone_is_told(tmp_path):
    a = am.Groups({("north",): estimate(P, 1), ("south",): estimate(P, 2)})
    a = am.Groups({k: replace(e, group={"region": k[0]}) for k, e in a.items()})
    b = am.Groups({("north",): replace(estimate(Q, 3), group={"region": "north"})})
    found = am.compare(a, b)
    assert list(found.items) == ["north"]
    assert found.unmatched == ("south",)
    assert "In one of the two only: south" in str(found)
    assert found.columns()["of"] == ["north"] * 9
    for name, result in (("a", a), ("b", b)):
        (tmp_path / name).write_text(result.to_json())
    assert am.compare(tmp_path / "a", tmp_path / "b").p_values == found.p_values
    with pytest.raises(am.InputError, match="share no group or cell"):
        am.compare(a, estimate(P, 1, chain=am.Window(30)))
    with pytest.raises(am.InputError, match=r"am\.equality compares counts"):
        am.compare(np.eye(3), np.eye(3))


def test_a_large_comparison_prints_within_a_hundred_columns():
    e = estimate(P, 1)
    S = 40
    names = tuple(f"state number {k}" for k in range(S))
    square = {
        name: np.full((S, S), 0.02) for name in ("standard_error", "sampling", "differences", "disagreement")
    }
    big = replace(
        e, states=names, transition_matrix=np.eye(S), stationary=np.full(S, 1 / S), baselines={}, **square
    )
    text = str(am.compare(big, replace(big, transition_matrix=np.roll(np.eye(S), 1, 0))))
    assert max(map(width, text.splitlines())) <= WIDTH
    assert len(text.splitlines()) < 20


def test_change_takes_the_path_of_a_run(tmp_path):
    windows = estimate(P, 1, chain=am.Window(30))
    (tmp_path / "estimates.jsonl").write_text(windows.to_json())
    assert am.change(tmp_path).p_value == am.change(windows).p_value

"""Pictures: every kind draws what it is given, shows itself in a notebook, and says what is wrong."""

import numpy as np
import pytest

pytest.importorskip("matplotlib", reason="pictures need matplotlib: pip install aggmc-beam[report]")

import aggmc_beam as am

P = [[0.9, 0.1], [0.3, 0.7]]


def one(**options):
    y, _ = am.simulate(P, steps=60, realizations=10, population=500, seed=1)
    return am.estimate(y, ["in", "out"], population=500, **options)


PLACES = {"in": (13.4, 52.5), "out": (10.0, 53.5)}


@pytest.mark.parametrize("kind", ["matrix", "flows", "network", "map"])
def test_every_kind_is_a_picture_in_a_notebook(kind):
    figure = one().plot(kind, coordinates=PLACES if kind == "map" else None)
    assert figure._repr_png_().startswith(b"\x89PNG")
    assert figure.axes[0].get_title()


def test_bands_of_the_flows_are_as_high_as_people_per_step():
    e = one()
    ax = e.plot("flows").axes[0]
    flow = e.stationary[:, None] * e.transition_matrix
    left = np.array(
        [np.ptp(c.get_paths()[0].vertices[c.get_paths()[0].vertices[:, 0] == 0, 1]) for c in ax.collections]
    )
    np.testing.assert_allclose(left / left.sum(), flow.ravel() / flow.sum(), atol=1e-9)
    texts = " ".join(t.get_text() for t in ax.texts)
    assert f"in  {500 * flow[0].sum():,.4g}" in texts


def test_a_map_puts_states_where_they_are():
    ax = one().plot("map", coordinates=PLACES).axes[0]
    np.testing.assert_allclose(ax.collections[0].get_offsets(), list(PLACES.values()))
    with pytest.raises(am.InputError, match="a map needs coordinates"):
        one().plot("map")
    with pytest.raises(am.InputError, match="no place for state 'out'"):
        one().plot("map", coordinates={"in": (0, 0)})
    with pytest.raises(am.InputError, match="there is no plot of kind 'flow'; did you mean 'flows'"):
        one().plot("flow")


@pytest.mark.parametrize(("S", "named"), [(60, True), (61, False)])
def test_states_are_named_up_to_sixty(S, named):
    y, _ = am.simulate(states=S, steps=8, realizations=3, population=2000, seed=1)
    found = am.estimate(y, [f"place {k}" for k in range(S)], estimator="simplex")
    ax = found.plot().axes[0]
    labels = [t.get_text() for t in ax.get_yticklabels()]
    assert (labels == [f"place {k}" for k in range(S)]) is named


def test_cells_by_name_groups_and_comparisons():
    windows = one(chain=am.Window(30))
    [ax] = windows.plot([("in", "out")]).axes
    np.testing.assert_array_equal(ax.lines[0].get_ydata(), windows["in", "out"])
    groups = am.Groups({(f"g{k}",): one() for k in range(3)})
    [ax] = groups.plot(("in", "out")).axes
    assert [t.get_text() for t in ax.get_yticklabels()] == ["g0", "g1", "g2"]
    assert ax.lines[0].get_xdata().tolist() == [e["in", "out"] for e in groups.values()]
    assert one(chain=am.Cycle(3)).plot(kind="flows").axes
    assert one(chain=am.Cycle(3)).plot("flows").axes
    with pytest.raises(am.InputError, match="no pooled matrix"):
        one(chain=am.Window(30), estimator="cls").plot(kind="flows")
    figure = am.compare(one(), one()).plot()
    assert "framed: differs at 5%" in figure.axes[0].get_title()

"""Reading a noise model from a description, as YAML gives it and `Noise.to_dict` writes it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aggmc_beam.errors import InputError, nearest
from aggmc_beam.noise.additive import DiscreteGaussian, DiscreteLaplace, Exact, Gaussian, Laplace, Panel
from aggmc_beam.noise.layers import Clipped, Rounded, Suppressed
from aggmc_beam.noise.linear import Linear
from aggmc_beam.noise.model import Noise
from aggmc_beam.noise.sightings import Binomial, Detection, Poisson
from aggmc_beam.noise.steps import PerStep

# Keys of each model in a description, the required one first; then, for privacy releases, those of
# the budget that may be given instead of sigma or scale.
_EITHER = ("epsilon", "delta", "rho", "sensitivity")
_MODELS: dict[str, tuple[Any, tuple[str, ...], tuple[str, ...]]] = {
    "exact": (Exact, (), ()),
    "panel": (Panel, (), ()),
    "binomial": (Binomial, ("alpha",), ()),
    "detection": (Detection, ("alpha",), ()),
    "poisson": (Poisson, ("alpha",), ()),
    "gaussian": (Gaussian, ("sigma",), _EITHER),
    "laplace": (Laplace, ("scale",), ("epsilon", "sensitivity")),
    "discrete-gaussian": (DiscreteGaussian, ("sigma",), _EITHER),
    "discrete-laplace": (DiscreteLaplace, ("scale",), ("epsilon", "sensitivity")),
    "linear": (Linear, ("A", "b", "covariance"), ()),
    "per-step": (PerStep, ("models",), ()),
    "suppressed": (Suppressed, ("below", "shown", "noise", "zeros"), ()),
    "rounded": (Rounded, ("base", "random", "noise"), ()),
    "clipped": (Clipped, ("at", "noise"), ()),
}


def noise_from_dict(description: Mapping[str, Any]) -> Noise:
    """Read a model from its description: the inverse of `Noise.to_dict`, and what YAML gives.

    Privacy releases may give their budget (epsilon, delta, rho, sensitivity) instead of a scale.

    >>> noise_from_dict({"model": "binomial", "alpha": 0.5})
    Binomial(alpha=0.5)
    >>> noise_from_dict({"model": "discrete-laplace", "epsilon": 0.1})
    DiscreteLaplace(scale=10.0)
    >>> noise_from_dict({"model": "clipped", "noise": {"model": "laplace", "scale": 2}})
    Clipped(at=0.0, noise=Laplace(scale=2.0))
    """
    if not isinstance(description, Mapping):
        raise InputError(
            f"noise must be a mapping such as {{model: binomial, alpha: 0.5}}, got {description!r}"
        )
    name = description.get("model")
    if not isinstance(name, str) or name not in _MODELS:
        given = "noise has no model" if name is None else f"unknown noise model {name!r}"
        raise InputError(f"{given}; {nearest(name, list(_MODELS))}")
    options = {key: value for key, value in description.items() if key != "model"}
    model, keys, budget = _MODELS[name]
    for key in options:
        if key not in keys + budget:
            raise InputError(f"{name} noise has no key {key!r}; {nearest(key, [*keys, *budget])}")
    spent = set(options) & set(budget)
    if spent and set(options) & set(keys):
        raise InputError(f"{name} noise has both {keys[0]} and a privacy budget; keep one of them")
    if spent and not spent & {"epsilon", "rho"}:
        raise InputError(f"{name} noise with a privacy budget needs epsilon")
    if keys and model is not Clipped and not spent and keys[0] not in options:
        also = f" (or a privacy budget: {', '.join(budget)})" if budget else ""
        raise InputError(f"{name} noise needs {keys[0]}{also}")
    if name == "per-step":
        if not isinstance(options["models"], list | tuple):
            raise InputError("per-step noise needs models: a list of noise descriptions")
        return PerStep([noise_from_dict(step) for step in options["models"]])
    if "noise" in options:  # what a layer lies over; a name alone is one without parameters
        below = options["noise"]
        options["noise"] = noise_from_dict({"model": below} if isinstance(below, str) else below)
    made: Noise = model.private(**options) if spent else model(**options)
    return made

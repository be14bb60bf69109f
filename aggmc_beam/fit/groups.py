"""Estimates of the groups of a state: the step from sums to answers, the same for every engine."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

import numpy as np

from aggmc_beam.chain import as_chain
from aggmc_beam.clock import Clock
from aggmc_beam.config.special import chain_to_plain
from aggmc_beam.errors import InputError
from aggmc_beam.estimators.registry import GROUPS
from aggmc_beam.fit.drawing import InCommon, add_told, check_groups_share, drawn, told
from aggmc_beam.fit.fit import Fit, Settings, estimate_sums
from aggmc_beam.fit.published import as_published
from aggmc_beam.fit.resolve import Mapped
from aggmc_beam.noise import Exact
from aggmc_beam.progress import ProgressHook, no_progress
from aggmc_beam.result import Estimate, Estimates
from aggmc_beam.sums.records import Group
from aggmc_beam.sums.spec import MARKED, check_gaps
from aggmc_beam.sums.state import AggregationState
from aggmc_beam.sums.sums import Sums


def estimate_only_group(state: AggregationState, settings: Settings) -> Estimate | Estimates:
    """The estimate of a state that has one group."""
    if len(state.groups) != 1:
        raise InputError(
            f"the file holds {len(state.groups)} groups; `aggmc moments estimate` estimates each of them"
        )
    return estimate_group(state, 0, settings)


def estimate_groups(
    state: AggregationState, settings: Settings, progress: ProgressHook = no_progress
) -> Iterator[tuple[Group, Estimate | Estimates | InputError]]:
    """The estimate of each group, or why there is none. Progress counts groups, or the cells of a single one."""
    several = len(state.groups) > 1
    for group, name in enumerate(state.groups):
        if several:
            progress("estimating", group, len(state.groups))
        try:
            yield name, estimate_group(state, group, settings, no_progress if several else progress)
        except InputError as error:
            yield name, error


def estimate_group(
    state: AggregationState, group: int, settings: Settings, progress: ProgressHook = no_progress
) -> Estimate | Estimates:
    """The estimate of a group, given by number."""
    return estimate_sums(*group_sums(state, group, settings), progress)


def group_sums(state: AggregationState, group: int, settings: Settings) -> tuple[Sums, Settings]:
    """The sums of a group, and the settings with what the state knows of them: populations that it knows need not
    be given."""
    sums, spec = state.sums.of_group(group), state.spec
    noise, population, weighted = settings.noise, settings.population, False
    chain = chain_to_plain(as_chain(settings.chain))
    if as_chain(settings.chain) is not spec.chain and chain not in (chain_to_plain(spec.chain), "stationary"):
        raise InputError(
            f"the sums were kept for chain {chain_to_plain(spec.chain)}; estimate with that, or with stationary"
        )
    if spec.undone is not None:
        if noise != spec.undone:
            raise InputError(f"the sums hold for the noise {spec.undone} only; run over the data for another")
        start, steps = state.span(group)
        noise = Mapped(noise, steps, start)
    N = state.population_of(group)
    if N is not None and len(N):
        if population != "estimate":
            raise InputError("populations were given for each realization; another cannot be set")
        population = float(N.mean())
        sums, weighted = _as_shares_of(sums, N, state.of_shares)
    check_gaps(spec.gaps, noise)
    if settings.open_population and isinstance(noise, Exact) and population == "estimate":
        population = float(sums.total.lag0.left.sum())
    sums, noise = as_published(
        sums, noise, weighted, population, spec.gaps == MARKED, not settings.open_population
    )
    known = replace(settings, noise=noise, population=population, weighted=weighted, states=spec.states)
    return sums, known


def _as_shares_of(sums: Sums, N: np.ndarray, of_shares: bool) -> tuple[Sums, bool]:
    """Sums of a group whose realizations have populations N, as counts if all have the same; whether they are of
    shares."""
    if not of_shares or np.ptp(N) > 0:
        return sums, of_shares
    return sums.as_counts(float(N[0])), False


def estimate_state(
    state: AggregationState, settings: Settings, progress: ProgressHook = no_progress
) -> tuple[dict[Group, Estimate | Estimates], dict[str, str]]:
    """Estimates by group, and the groups that have too little data, with the reason."""
    results: dict[Group, Estimate | Estimates] = {}
    skipped: dict[str, str] = {}
    check_groups_share(settings, state.spec.group_by)
    for name, found in estimate_groups(state, settings, progress):
        if isinstance(found, InputError):
            if len(state.groups) == 1:
                raise found
            skipped[", ".join(name)] = str(found)
            continue
        group = dict(zip(state.spec.group_by, name, strict=True)) or None
        results[name] = labelled(found, group, state.spec.clock)
    if not results:
        raise InputError(f"no group has enough data; the first one: {next(iter(skipped.values()))}")
    if settings.pooling == GROUPS:
        common = add_told(told_by(state, settings, results))
        results = {name: drawn_to(state, settings, name, own, common) for name, own in results.items()}
    return results, skipped


def told_by(
    state: AggregationState, settings: Settings, own: Mapping[Group, Estimate | Estimates]
) -> Iterator[InCommon]:
    """What each of the groups that were estimated tells of what all have in common."""
    for name, found in own.items():
        yield told(Fit(*group_sums(state, state.groups.index(name), settings)), found)


def drawn_to(
    state: AggregationState, settings: Settings, name: Group, own: Estimate | Estimates, common: InCommon
) -> Estimate | Estimates:
    """The estimates of a group of a state, drawn to those of all groups."""
    return drawn(Fit(*group_sums(state, state.groups.index(name), settings)), own, common)


def listed(results: Mapping[Group, Estimate | Estimates]) -> list[Estimate]:
    """All estimates, group by group and cell by cell."""
    found: list[Estimate] = []
    for result in results.values():
        found += [result] if isinstance(result, Estimate) else list(result)
    return found


def by_group(estimates: Iterable[Estimate]) -> dict[Group, Estimate | Estimates]:
    """What `listed` took apart; the pooled matrix of cells was not kept."""
    found: dict[Group, list[Estimate]] = {}
    for estimate in estimates:
        found.setdefault(tuple(map(str, (estimate.group or {}).values())), []).append(estimate)
    return {g: e[0] if e[0].cell is None else Estimates(tuple(e)) for g, e in found.items()}


def labelled(found: Estimate | Estimates, group: dict[str, str] | None, clock: Clock) -> Estimate | Estimates:
    """With the group, and windows in the user's own times."""

    def label(e: Estimate) -> Estimate:
        window = e.window
        if window is not None:
            window = {name: clock.label_local(step) for name, step in window.items()}  # type: ignore[misc]
        return replace(e, group=group, window=window)

    if isinstance(found, Estimate):
        return label(found)
    pooled = None if found.pooled is None else label(found.pooled)
    return replace(found, items=tuple(label(e) for e in found.items), pooled=pooled)

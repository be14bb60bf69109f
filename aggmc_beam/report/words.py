"""Diagnostics in plain words: what was assumed, what was found, what to do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from aggmc_beam.printing import borrowed_words
from aggmc_beam.report.collection import Item
from aggmc_beam.report.outline import plain, rows

#: Fewer jackknife groups than this give intervals that are themselves uncertain.
FEW_GROUPS = 10
#: An interval wider than this says little about an entry.
WIDE = 0.3
#: Above this condition number, noise in the counts is blown up in the estimate.
ILL = 1e4

_ADDED = "Noise of mean zero and {} was added to every count."
_NOISE = {
    "exact": "Counts are complete: everyone is counted, in the right state, at every step.",
    "binomial": "Everyone is seen with probability {alpha}, independently of others and of the state.",
    "detection": "Everyone is seen with a probability that depends on the state: {alpha}.",
    "poisson": "Everyone is counted {alpha} times on average, so perhaps more than once.",
    "gaussian": _ADDED.format("standard deviation {sigma} (Gaussian)"),
    "discrete-gaussian": _ADDED.format("standard deviation {sigma} (discrete Gaussian)"),
    "laplace": _ADDED.format("scale {scale} (Laplace)"),
    "discrete-laplace": _ADDED.format("scale {scale} (discrete Laplace)"),
    "linear": "The mean of the counts is a known linear function of the true counts.",
    "per-step": "The counts of each step have their own noise.",
    "suppressed": "Counts below {below} are not shown.",
    "rounded": "Counts are rounded to multiples of {base}.",
    "clipped": "Counts below {at} are shown as {at}.",
}


@dataclass(frozen=True)
class Finding:
    """`tone` is "fine", "look" or "act"; empty texts are left out."""

    topic: str
    tone: str
    assumed: str = ""
    found: str = ""
    todo: str = ""


def findings(x: Item, states: tuple[str, ...]) -> list[Finding]:
    """What the estimate's diagnostics say, the most pressing first.

    Keys that are not known here are shown as they are.
    """
    raw = x.source.get("diagnostics")
    left = dict(raw) if isinstance(raw, Mapping) else {}
    found = [
        *_warnings(x.source.get("warnings")),
        *_ground(left.pop("ground", None)),
        _noise(x.source, left.pop("noise_test", None) or _tests(left.get("choice"))),
        _chain(x, left.pop("drift", None), left.get("choice")),
        _population(x.source, left.pop("population", None)),
        *_checks(left.pop("checks", None)),
        *_borrowed(left.pop("borrowed", None)),
        *_rows(left.pop("rows", None)),
        _interval(x, states, left.pop("interval", None)),
        _entries(x, left.pop("outside", None), left.pop("condition", None)),
    ]
    if left.get("choice") is not None:
        found.append(_choice(left.pop("choice")))
    if left.get("scores") is not None:
        found.append(_scores(left.pop("scores")))
    for key, value in left.items():
        if value not in (None, [], {}):
            text, todo, tone = tell(value)
            found.append(Finding(key.replace("_", " ").capitalize(), tone, "", text, todo))
    return sorted(found, key=lambda f: ("act", "look", "fine").index(f.tone))


def _warnings(warnings: Any) -> list[Finding]:
    told = warnings if isinstance(warnings, list) else []
    return [Finding("Warning", "act", "", _sentence(str(w)[:1].upper() + str(w)[1:])) for w in told]


def _checks(checks: Any) -> list[Finding]:
    """Of totals; what failed is among the warnings."""
    told = [c for c in checks if isinstance(c, Mapping)] if isinstance(checks, list) else []
    if not told:
        return []
    size = "; ".join(
        f"{c.get('name')} (t = {plain(c.get('t'))}, limit {plain(c.get('limit'))})" for c in told
    )
    failed = [str(c.get("name")) for c in told if c.get("passed") is False]
    found = f"{'Against that: ' + ', '.join(failed) if failed else 'They do'}. Tested: {size}."
    assumed = "The totals of a closed population change by the noise alone, as stated."
    return [Finding("Totals", "act" if failed else "fine", assumed, found)]


def _ground(ground: Any) -> list[Finding]:
    """What the estimate stands on."""
    if not isinstance(ground, Mapping) or not ground.get("sentence"):
        return []
    words = str(ground["sentence"])
    tone = "fine" if ground.get("name") == "independent" else "look"
    return [Finding("Ground", tone, "", _sentence(words[:1].upper() + words[1:]))]


def _borrowed(note: Any) -> list[Finding]:
    """What is not seen in the estimate's own data."""
    if not isinstance(note, Mapping) or not _is_number(note.get("share")):
        return []
    assumed = f"What {note['from']} have in common holds here too, as far as they are alike."
    return [Finding("Borrowed", "look" if note["share"] > 0.5 else "fine", assumed, borrowed_words(note))]


def tell(value: Any) -> tuple[str, str, str]:
    """Any diagnostic as (found, what to do, tone): its sentences first, then its numbers.

    >>> tell({"why": "The noise fits.", "J": 3.2, "accepted": True})
    ('The noise fits. J: 3.2; accepted: yes.', '', 'fine')
    """
    if not isinstance(value, Mapping):
        return _sentence(plain(value)), "", "fine"
    left = dict(value)
    sentences = [str(left.pop(key)) for key in ("why", "found", "message", "note") if left.get(key)]
    todo = " ".join(str(left.pop(key)) for key in ("todo", "do", "advice", "hint") if left.get(key))
    numbers = "; ".join(f"{name.replace('_', ' ')}: {text}" for name, text in rows(left, limit=30))
    text = " ".join(_sentence(s) for s in [*sentences, numbers] if s)
    return text, _sentence(todo), _tone(value)


def _tone(value: Mapping[str, Any]) -> str:
    if value.get("tone") in ("fine", "look", "act"):
        return str(value["tone"])
    refused = [value.get(key) is False for key in ("accepted", "passed", "ok")]
    alarmed = [
        value.get(key) is True for key in ("rejected", "raised", "detected", "drifting", "flag", "warning")
    ]
    chance = next((value[key] for key in ("p", "p_value", "pvalue") if key in value), None)
    unlikely = isinstance(chance, int | float) and chance < 0.01
    return "act" if any(refused) or any(alarmed) or unlikely else "fine"


def noise_in_words(noise: Any) -> str:
    """What a noise description says of the counts.

    >>> noise_in_words({"model": "rounded", "base": 5, "noise": {"model": "binomial", "alpha": 0.5}})[-38:]
    ' Counts are rounded to multiples of 5.'
    """
    if not isinstance(noise, Mapping):
        return "The noise model is not recorded."
    values = {key: plain(value) for key, value in noise.items()}
    try:
        found = _NOISE[values.get("model", "")].format(**values)
        return (
            f"{noise_in_words(noise['noise'])} {found}" if isinstance(noise.get("noise"), Mapping) else found
        )
    except KeyError:
        return _sentence(f"Noise {plain(noise)}")


def _noise(e: Mapping[str, Any], test: Any) -> Finding:
    found, todo, tone = tell(test) if test is not None else ("Taken as given, not tested.", "", "fine")
    if tone == "act" and not todo:
        todo = "Check the noise model and its parameter; a wrong one biases the matrix."
    return Finding("Noise", tone, noise_in_words(e.get("noise")), found, todo)


def _chain(x: Item, drift: Any, choice: Any) -> Finding:
    found, todo, tone = tell(drift) if drift is not None else ("", "", "fine")
    if isinstance(drift, Mapping) and {"raised", "statistic", "limit"} <= set(drift):
        size = f"(largest t {plain(drift['statistic'])}, limit {plain(drift['limit'])})"
        found = f"Mean shares move no more than chance lets them {size}."
        if drift["raised"]:
            found = f"Mean shares change with time {size}."
            if drift.get("implied_bias") is not None:
                found += (
                    f" Left in, that would put an error of about {plain(drift['implied_bias'])} into entries."
                )
            if isinstance(choice, Mapping) and choice.get("form") in (
                "steps",
                "detrended",
                "periodic",
                "settled",
            ):
                tone, todo = "look", "The change was taken out of the estimate; see the choice of estimator."
    if x.position is None:
        assumed = "One matrix holds at all times, and individuals move independently of each other."
    else:
        assumed = "The matrix holds within this cell only; other cells have their own."
    if tone == "act" and not todo:
        todo = "Let the chain change with time: chain: {window: ...}, {cycle: ...} or per-step."
    return Finding("Chain", tone, assumed, found, todo)


def _tests(choice: Any) -> Any:
    """The test of the noise that stands in the choice, in words."""
    tests = choice.get("noise_test") if isinstance(choice, Mapping) else None
    test = tests.get("known") if isinstance(tests, Mapping) else None
    if not isinstance(test, Mapping) or not {"J", "limit", "accepted"} <= set(test):
        return tests or None
    size = f"(J = {plain(test['J'])}, limit {plain(test['limit'])})"
    if test["accepted"]:
        return {"why": f"The variances of the counts agree with that {size}."}
    return {
        "why": f"The variances of the counts do not agree with that {size}; they are not relied on.",
        "todo": "Check the noise model and its parameter.",
        "tone": "look",
    }


def _choice(choice: Any) -> Finding:
    assumed = "The form of the estimator was left to the data (auto)."
    if not isinstance(choice, Mapping):
        return Finding("Choice of estimator", "fine", assumed, *tell(choice)[:2])
    left = {key: value for key, value in choice.items() if key not in ("noise_test", "estimator", "form")}
    made = [plain(choice[key]) for key in ("estimator", "form") if choice.get(key)]
    text, todo, tone = tell(left)
    text = text[:1].upper() + text[1:]
    return Finding("Choice of estimator", tone, assumed, f"{', '.join(made)}. {text}".lstrip(". "), todo)


def _scores(scores: Any) -> Finding:
    """Prediction errors by name; the estimate should have the lowest."""
    topic, assumed = "Prediction one step ahead", "Some records are left out and predicted from those before."
    names = ("estimate", "identity", "naive")
    errors = {k: scores[k] for k in names if _is_number(scores.get(k))} if isinstance(scores, Mapping) else {}
    if "estimate" not in errors or len(errors) < 2:
        text, todo, tone = tell(scores)
        return Finding(topic, tone, assumed, text, todo)
    ranked = sorted(errors, key=lambda name: float(errors[name]))
    found = (
        "Mean squared error, lower is better: " + ", ".join(f"{n} {plain(errors[n])}" for n in ranked) + "."
    )
    if ranked[0] == "estimate":
        return Finding(topic, "fine", assumed, found)
    todo = f"{ranked[0].capitalize()} predicts better: the data say little about moves. Gather more, or "
    return Finding(topic, "look", assumed, found, todo + "check the settings.")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _population(e: Mapping[str, Any], note: Any) -> Finding:
    size = e.get("population")
    found = "" if size is None else f"{plain(size)} individuals"
    left = dict(note) if isinstance(note, Mapping) else {} if note is None else {"note": note}
    error = left.pop("standard_error", None)
    if found and error is not None:
        found += f" ± {plain(error)}"
    method = left.pop("method", None)
    assumed = "The population is closed: nobody comes or goes"
    if method == "given":
        assumed += ". Its size was given."
    elif method:
        assumed += f". Its size: {method}."
    more, todo, tone = tell(left) if left else ("", "", "fine")
    text = " ".join(part for part in (_sentence(found), more) if part)
    return Finding("Population", tone, _sentence(assumed), text, todo)


def _rows(flags: Any) -> list[Finding]:
    if not isinstance(flags, list) or not flags:
        return []
    made = []
    kinds = {
        "never-seen": ("act", "States never seen", "Drop the states, or check their names in the data."),
        "rare": ("look", "Rare states", "Merge rare states with others, or gather more data."),
        "not-determined": ("act", "Rows that are not determined", "Do not use these rows."),
        "borrowed": ("look", "Rows that are mostly borrowed", "Read them as what the data have in common."),
    }
    for kind in dict.fromkeys(f.get("flag") if isinstance(f, Mapping) else None for f in flags):
        tone, topic, todo = kinds.get(str(kind), ("look", "Rows", ""))
        whys = [
            tell({"why": f.get("why") or plain(f)})[0] if isinstance(f, Mapping) else str(f)
            for f in flags
            if (f.get("flag") if isinstance(f, Mapping) else None) == kind
        ]
        shown = " ".join(w[:1].upper() + w[1:] for w in whys[:8])
        if len(whys) > 8:
            shown += f" And {len(whys) - 8} more states."
        made.append(Finding(topic, tone, "", shown, todo))
    return made


def _interval(x: Item, states: tuple[str, ...], note: Any) -> Finding:
    note = note if isinstance(note, Mapping) else {}
    level, groups = x.source.get("level"), note.get("groups")
    width = x.upper - x.lower
    if not np.isfinite(width).any():
        return Finding(
            "Intervals",
            "act",
            "",
            "No intervals could be computed: there are too few groups of records to leave one out.",
            "Give more realizations, or longer ones.",
        )
    share = f"{100 * level:g}%" if isinstance(level, int | float) else "The"
    assumed = f"{share} intervals around the value that is shown, from how groups of records differ"
    if isinstance(groups, int):
        assumed += f" ({groups} groups)"
    assumed += "; groups are taken to be independent."
    middle = float(np.nanmedian(width))
    found = f"Half of the entries have an interval narrower than {middle:.3g}."
    if note.get("cut"):
        found += " Bounds are cut to [0, 1]."
    found += _parts(x.source.get("parts"))
    wide = [states[i] for i in range(len(states)) if np.nanmax(np.r_[0.0, width[i]]) > WIDE]
    todo, tone = "", "fine"
    if wide:
        some = ", ".join(wide[:6]) + (f" and {len(wide) - 6} more" if len(wide) > 6 else "")
        found += f" Wide ones (over {WIDE}) are in the rows of: {some}."
        tone, todo = "look", "Do not read single entries of those rows; more data or fewer states help."
    if isinstance(groups, int) and groups < FEW_GROUPS:
        tone = "look"
        todo = f"Fewer than {FEW_GROUPS} groups: the intervals are rough. " + todo
    return Finding("Intervals", tone, assumed, found, todo.strip())


def _parts(parts: Any) -> str:
    """What the widths come from, in shares of their squares."""
    if not isinstance(parts, Mapping):
        return ""
    squares = {k: float(np.nansum(np.array(v, float) ** 2)) for k, v in parts.items()}
    whole = sum(squares.values())
    if not whole > 0:
        return ""
    return " They come from " + ", ".join(f"{k} ({100 * v / whole:.0f}%)" for k, v in squares.items()) + "."


def _entries(x: Item, outside: Any, condition: Any) -> Finding:
    count = outside if isinstance(outside, int) else int(((x.P < 0) | (x.P > 1)).sum())
    found = "All known entries lie between 0 and 1."
    tone, todo = "fine", ""
    if count:
        found = f"{count} of {x.P.size} entries lie outside 0 to 1, as sampling error lets them."
        tone, todo = "look", "Use the estimator auto or simplex for a matrix of probabilities."
    if isinstance(condition, int | float):
        found += f" Condition number {condition:.3g}."
        if condition > ILL:
            tone = "look"
            todo = f"{todo} The larger the condition number, the more noise is blown up; merge states "
            todo += "that rise and fall together."
    return Finding("Entries", tone, "", found, todo.strip())


def _sentence(text: str) -> str:
    text = text.strip()
    return text if not text or text[-1] in ".!?" else text + "."


def in_short(x: Item, states: tuple[str, ...]) -> list[str]:
    """Two or three sentences that a reader in a hurry needs."""
    P = np.where(x.stationary[:, None] > 0, x.P, np.nan)
    if not np.isfinite(P).any():
        return ["No row of the matrix is known."]
    said = []
    stay = np.diag(P)
    moves = np.where(np.eye(len(P), dtype=bool), np.nan, P)
    if np.isfinite(stay).any():
        i = int(np.nanargmax(stay))
        said.append(f"Most likely to stay: {states[i]}, {_percent(x, i, i)} from one step to the next.")
    if np.isfinite(moves).any():
        i, j = divmod(int(np.nanargmax(moves)), len(moves))
        said.append(f"Largest move: {states[i]} → {states[j]}, {_percent(x, i, j)}.")
    top = int(np.argmax(x.stationary))
    said.append(f"In the long run {100 * x.stationary[top]:.3g}% are in {states[top]}.")
    return said


def _percent(x: Item, i: int, j: int) -> str:
    text = f"{100 * x.P[i, j]:.3g}%"
    if np.isfinite(x.lower[i, j]) and np.isfinite(x.upper[i, j]):
        text += f" ({100 * x.lower[i, j]:.3g} to {100 * x.upper[i, j]:.3g}%)"
    return text

"""A matplotlib figure as a small inline SVG whose colours follow the page's theme.

Matplotlib writes colours into style attributes, which a page without `unsafe-inline` may not use and
which know one theme only. Here drawings use the inks below, and each becomes a CSS class. Elements
are flat; an artist with the gid "role:name:1:2" becomes data-role="name" data-at="1 2".
"""

from __future__ import annotations

import io
import re
import warnings
import xml.etree.ElementTree as ET  # nosec B405
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from aggmc_beam.errors import InputError
from aggmc_beam.report.markup import Markup, clean, tag

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Stand-ins for the colours of the theme: a drawing says which, the style sheet says what.
INK, SOFT, LINE, ACCENT, SECOND, CELL, GREY, ON_PALE, ON_DEEP = (f"#00000{k}" for k in range(1, 10))
_CLASSES = dict(
    zip(
        (INK, SOFT, LINE, ACCENT, SECOND, CELL, GREY, ON_PALE, ON_DEEP),
        ("ink", "soft", "line", "accent", "second", "cell", "grey", "pale", "deep"),
        strict=True,
    )
)
_KEPT = {"opacity", "fill-opacity", "stroke-width", "stroke-linecap", "stroke-dasharray", "text-anchor"}
_NUMBER = re.compile(r"-?\d+\.\d+(?:e-?\d+)?")
_BOX = re.compile(r"M (\S+) (\S+) L (\S+) \2 L \3 (\S+) L \1 \4(?: L \1 \2)? z")


def need_matplotlib() -> None:
    """`InputError` that says what to install where matplotlib is missing."""
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError as error:
        raise InputError(
            "figures and the report need matplotlib: pip install aggmc-beam[report], or set "
            "output.report to false"
        ) from error


@contextmanager
def drawing() -> Iterator[None]:
    """Matplotlib's defaults, whatever the user has set, with text kept as text."""
    need_matplotlib()
    import matplotlib as mpl

    with mpl.rc_context(), warnings.catch_warnings():
        # Fonts measure text here and do not draw it: the reader's browser has the glyphs.
        warnings.filterwarnings("ignore", message="Glyph|Matplotlib currently does not support")
        mpl.rcdefaults()
        mpl.rcParams.update({"svg.fonttype": "none", "path.simplify": False, "svg.hashsalt": "aggmc"})
        yield


def inline_svg(figure: Figure, label: str, **data: Any) -> Markup:
    """The figure's elements in one `<svg>` with the data attributes given; call within `drawing`."""
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    # What is parsed was written by matplotlib just now, with names escaped.
    root = ET.fromstring(buffer.getvalue())  # nosec B314
    width, height = figure.get_size_inches() * 72
    parts: list[str] = []
    cells: list[str] = []
    for element, role in _walk(root, None):
        written = _element(element, role)
        (cells if role and role[0] == "level" else parts).append(written)
        if role and role[0] == "base":
            parts.append("{cells}")
    group = tag("g", Markup("".join(cells)), data_role="cells")
    body = "".join(group if part == "{cells}" else part for part in parts)
    return tag(
        "svg",
        Markup(body),
        viewBox=f"0 0 {width:g} {height:g}",
        role="img",
        aria_label=label,
        **{f"data_{key}": value for key, value in data.items()},
    )


def _walk(element: ET.Element, role: list[str] | None) -> Iterator[tuple[ET.Element, list[str] | None]]:
    name = element.tag.rpartition("}")[2]
    identity = element.get("id", "")
    if identity.startswith("role:"):
        role = identity.split(":")[1:]
    if name in ("path", "text"):
        yield element, role
    elif name in ("svg", "g"):
        for child in element:
            yield from _walk(child, role)


def _element(element: ET.Element, role: list[str] | None) -> str:
    name = element.tag.rpartition("}")[2]
    style = _style(element.get("style", ""))
    attributes: dict[str, Any] = {}
    classes = []
    for key in ("fill", "stroke"):
        colour = style.get(key)
        if colour in _CLASSES:
            classes.append(f"{key[0]}-{_CLASSES[colour]}")
        elif colour == "none":
            attributes[key] = "none"
    attributes |= {key: value for key, value in style.items() if key in _KEPT}
    if name == "text":
        if not style.get("fill"):
            classes.append("f-ink")
        attributes |= {"font-size": style["font-size"], **_position(element)}
    else:
        attributes["d"] = _compact(element.get("d", ""))
    if role:
        attributes["data-role"] = role[0]
        if role[1:]:
            attributes["data-at"] = " ".join(role[1:])
    if classes:
        attributes["class"] = " ".join(classes)
    return tag(name, clean(element.text or "") if name == "text" else "", **attributes)


def _style(text: str) -> Mapping[str, str]:
    style = {}
    for part in text.split(";"):
        key, _, value = part.partition(":")
        style[key.strip()] = value.strip()
    # Either "font: 600 10px 'DejaVu Sans'" or its long forms.
    size = re.search(r"([\d.]+)px", style.get("font-size", style.get("font", "")))
    style["font-size"] = f"{float(size.group(1)):g}" if size else "10"
    style.setdefault("text-anchor", "start")
    return style


def _position(element: ET.Element) -> dict[str, Any]:
    """Where a text stands; matplotlib says it twice, and rotates by nothing."""
    x, y = element.get("x"), element.get("y")
    transform = element.get("transform", "")
    if x is None:
        moved = re.search(r"translate\(([-\d.]+)[ ,]+([-\d.]+)\)", transform)
        x, y = moved.groups() if moved else ("0", "0")
    angle = re.search(r"rotate\(([-\d.]+)", transform)
    at = {"x": f"{float(x):.5g}", "y": f"{float(y or 0):.5g}"}
    if angle and float(angle.group(1)) != 0:
        at["transform"] = f"rotate({float(angle.group(1)):g} {at['x']} {at['y']})"
    return at


def _compact(d: str) -> str:
    """Path data with two decimals, and boxes as H and V.

    >>> _compact("M 1.001 2.5 L 9.25 2.5 L 9.25 4.0 L 1.001 4.0 z")
    'M1 2.5H9.25V4H1z'
    """
    d = _NUMBER.sub(lambda m: f"{round(float(m.group()), 2):g}", " ".join(d.split()))
    d = _BOX.sub(r"M\1 \2H\3V\4H\1z", d)
    return re.sub(r" ?([MLHVCQz]) ?", r"\1", d)

"""HTML from Python values: everything is escaped unless it is already `Markup`."""

from __future__ import annotations

import html
import re
from typing import Any

# Characters that neither XML nor a UTF-8 file can hold: controls, lone surrogates, non-characters.
_UNPRINTABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
_VOID = {"meta", "br", "link", "col", "input"}


class Markup(str):
    """Text that is HTML already, made by `tag`."""

    __slots__ = ()


def clean(value: Any) -> str:
    """Text that any page can hold: what cannot be written is shown as the replacement sign."""
    return _UNPRINTABLE.sub("\ufffd", str(value))


def escape(value: Any) -> Markup:
    """The value as text.

    >>> escape("<script>alert(1)</script>")
    '&lt;script&gt;alert(1)&lt;/script&gt;'
    """
    return value if isinstance(value, Markup) else Markup(html.escape(clean(value)))


def tag(name: str, /, *children: Any, **attributes: Any) -> Markup:
    """An element. `class_` gives class, `data_x` data-x, None leaves an attribute out, True is bare.

    >>> tag("p", "a < b", class_="note", hidden=True, title=None)
    '<p class="note" hidden>a &lt; b</p>'
    """
    text = ""
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        key = key.rstrip("_").replace("_", "-")
        text += f" {key}" if value is True else f' {key}="{escape(value)}"'
    if name in _VOID:
        return Markup(f"<{name}{text}>")
    return Markup(f"<{name}{text}>{join(children)}</{name}>")


def join(children: Any) -> Markup:
    """The children one after another, each escaped."""
    return Markup("".join(escape(child) for child in children))

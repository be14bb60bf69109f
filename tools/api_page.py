"""A hook of mkdocs: lines such as `::: aggmc_beam.estimate` become the signature and the docstring of that name."""

from __future__ import annotations

import inspect
import re
from importlib import import_module
from typing import Any


def on_page_markdown(markdown: str, **_: Any) -> str:
    """The page with its names told."""
    return re.sub(r"^::: (\S+)$", lambda found: told(found[1]), markdown, flags=re.MULTILINE)


def told(path: str) -> str:
    """A public name as Markdown: of a class also its public methods.

    >>> print(told("aggmc_beam.printing.number").splitlines()[0])
    ### number(value, error=None)
    """
    home, _, name = path.rpartition(".")
    what = getattr(import_module(home), name)
    parts = [f"### {name}{_signature(what)}", text_of(what)]
    if inspect.isclass(what):
        for method, member in vars(what).items():
            inner = member.fget if isinstance(member, property) else getattr(member, "__func__", member)
            if not method.startswith("_") and callable(inner) and inner.__doc__:
                shown = method if isinstance(member, property) else f"{method}{_signature(inner)}"
                parts += [f"**`.{shown}`**", text_of(inner)]
    return "\n\n".join(parts)


def _signature(what: Any) -> str:
    """Names and defaults; types are told in words."""
    made = inspect.signature(what)
    plain = [
        p.replace(
            annotation=p.empty,
            default=p.default if p.default is p.empty or not callable(p.default) else "...",
        )
        for p in made.parameters.values()
        if p.name not in ("self", "cls")
    ]
    return str(made.replace(parameters=plain, return_annotation=made.empty)).replace("'...'", "...")


def text_of(what: Any) -> str:
    """The docstring as Markdown, its examples as code."""
    lines, code = [], False
    for line in (inspect.getdoc(what) or "").splitlines():
        if line.startswith(">>>") and not code:
            lines.append("```pycon")
            code = True
        elif code and not line.strip():
            lines.append("```")
            code = False
        lines.append(line)
    return "\n".join([*lines, *(["```"] if code else [])])

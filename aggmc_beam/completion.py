"""Scripts by which shells complete `aggmc`: made from its parser, so that they never differ from it."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

SHELLS = ("bash", "zsh", "fish")
Words = tuple[str, ...]


def script(parser: argparse.ArgumentParser, shell: str) -> str:
    """The script for a shell.

    >>> made = argparse.ArgumentParser(prog="aggmc", add_help=False)
    >>> _ = made.add_argument("--level")
    >>> print(script(made, "fish"))
    complete -c aggmc -n "not __fish_seen_subcommand_from " -l level
    <BLANKLINE>
    """
    tree = dict(_commands(parser))
    return _fish(tree) if shell == "fish" else _bash(tree, shell)


def _commands(parser: argparse.ArgumentParser, path: Words = ()) -> Iterator[tuple[Words, Words]]:
    """Each command by the words that lead to it, and the words that may follow."""
    options = [o for action in parser._actions for o in action.option_strings if o.startswith("--")]
    inner: list[tuple[str, argparse.ArgumentParser]] = []
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            inner += action.choices.items()
        elif action.choices is not None:
            options += [str(choice) for choice in action.choices if not action.option_strings]
    yield path, (*(name for name, _ in inner), *options)
    for name, made in inner:
        yield from _commands(made, (*path, name))


def _bash(tree: dict[Words, Words], shell: str) -> str:
    """What follows the words so far; files where nothing is known to follow."""
    cases = "\n".join(f'    "{" ".join(path)}") words="{" ".join(words)}" ;;' for path, words in tree.items())
    names = "|".join(sorted({name for path in tree for name in path}))
    load = "autoload -U +X bashcompinit && bashcompinit\n" if shell == "zsh" else ""
    return f"""{load}_aggmc() {{
  local current="${{COMP_WORDS[COMP_CWORD]}}" path="" word words=""
  for word in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
    case "$word" in {names}) path="${{path:+$path }}$word" ;; esac
  done
  case "$path" in
{cases}
  esac
  COMPREPLY=($(compgen -W "$words" -- "$current"))
}}
complete -o default -F _aggmc aggmc
"""


def _fish(tree: dict[Words, Words]) -> str:
    first = " ".join(path[0] for path in tree if len(path) == 1)
    lines = []
    for path, words in tree.items():
        seen = " and ".join(f"__fish_seen_subcommand_from {name}" for name in path)
        when = seen.replace(" and ", "; and ") or f"not __fish_seen_subcommand_from {first}"
        for word in words:
            what = f"-l {word[2:]}" if word.startswith("--") else f"-a {word}"
            lines.append(f'complete -c aggmc -n "{when}" {what}')
    return "\n".join(lines) + "\n"

"""What modules may import of other libraries; which layer imports which is held by `make lint`."""

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "aggmc_beam"
#: Rooms that may import engines' libraries, and what each may use.
ROOMS = {
    "local": {"polars", "pyarrow"},
    "beam": {"apache_beam", "polars", "pyarrow"},
    "report": {"matplotlib"},
    "config": {"yaml"},
}
ALWAYS = {"numpy", "scipy", "aggmc_beam"}
#: Modules by themselves that may use another library.
MODULES = {"blas.py": {"threadpoolctl"}}
STANDARD = set(__import__("sys").stdlib_module_names)


def imports(path):
    """What a module imports when it runs; imports for type checkers alone do not count."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING":
            node.body = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield node.module


def test_only_engines_import_engine_libraries():
    for path in PACKAGE.rglob("*.py"):
        room = path.relative_to(PACKAGE).parts[0]
        allowed = (
            ALWAYS
            | STANDARD
            | ROOMS.get(room, set())
            | MODULES.get(path.relative_to(PACKAGE).as_posix(), set())
        )
        foreign = {name.split(".")[0] for name in imports(path)} - allowed
        assert not foreign, f"{path.relative_to(PACKAGE)} imports {foreign}"


def test_every_public_name_shows_an_example():
    import aggmc_beam

    for name in aggmc_beam.__all__:
        assert ">>>" in (getattr(aggmc_beam, name).__doc__ or ""), name


def test_public_names_are_the_same_for_type_checkers_and_at_run_time():
    import aggmc_beam

    tree = ast.parse((PACKAGE / "__init__.py").read_text(encoding="utf-8"))
    shown = [n for node in tree.body if isinstance(node, ast.If) for n in node.body]
    homes = {a.name: node.module for node in shown for a in node.names}
    assert sorted(homes) == sorted(aggmc_beam.__all__)
    for name, home in homes.items():
        assert getattr(aggmc_beam, name) is getattr(importlib.import_module(home), name)
    assert set(aggmc_beam.__all__) <= set(dir(aggmc_beam))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = aggmc_beam.nothing


@pytest.mark.parametrize(
    ("start", "absent"),
    [
        ("import aggmc_beam", ("numpy", "scipy", "polars", "apache_beam")),
        ("import aggmc_beam.cli; aggmc_beam.cli.parser()", ("numpy", "scipy", "polars", "apache_beam")),
        ("import aggmc_beam as am; am.simulate; am.estimate", ("polars", "apache_beam")),
        ("import aggmc_beam.local, aggmc_beam.commands", ("apache_beam",)),
    ],
)
def test_what_is_not_needed_is_not_imported(start, absent):
    code = f"{start}; import sys; print([m for m in {absent} if m in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "[]\n"

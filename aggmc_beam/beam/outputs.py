"""Types of the outputs of a step that has several."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import apache_beam as beam


def outputs(fn: beam.DoFn, types: Mapping[str, Any], *side: Any, main: str | None = None) -> Any:
    """A step with outputs of these types, each with a tag but `main`; give what comes of it to `typed`."""
    return beam.ParDo(fn, *side).with_outputs(*(name for name in types if name != main), main=main)


def typed(found: Any, types: Mapping[str, Any]) -> Any:
    """Tell Beam the types of a step's outputs, by their names.

    `with_output_types` knows no tags in older releases of Beam, and `--runtime_type_check` compares what has any tag
    with the type of the output that has none.
    """
    for name, kind in types.items():
        getattr(found, name).element_type = beam.typehints.native_type_compatibility.convert_to_beam_type(
            kind
        )
    return found

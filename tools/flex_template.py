"""The metadata of the Dataflow Flex Template, made from the config model: `make docs`.

Every parameter is an option of `pipelines/run.py`; a launch is refused where a value cannot be right.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from aggmc_beam.config.keys import Key, keys

PATH = Path("configs/flex_template/metadata.json")
#: Keys that mean nothing on Dataflow: what runs the config, and data that are drawn on this machine.
LEFT_OUT = re.compile(r"engine|simulate\..*")
_CLOUD = r"[a-z][a-z0-9]*://.+"
#: Keys whose values Dataflow knows: the type of the parameter, and what a value looks like.
_KNOWN = {
    "input.files": ("TEXT", rf"^({_CLOUD}|\[.+\])$"),
    "input.pubsub.subscription": ("PUBSUB_SUBSCRIPTION", r"^projects/[^/]+/subscriptions/[^/]+$"),
    "input.pubsub.topic": ("PUBSUB_TOPIC", r"^projects/[^/]+/topics/[^/]+$"),
    "input.separator": ("TEXT", r"^.$"),
    "output.directory": ("TEXT", rf"^{_CLOUD}$"),
    "output.pubsub": ("PUBSUB_TOPIC", r"^projects/[^/]+/topics/[^/]+$"),
    "output.bigquery": ("BIGQUERY_TABLE", r"^[^:]+:[^.]+\.[^.]+$"),
}
_SHAPES = {
    "integer": r"[0-9]+",
    "number": r"[0-9]*\.?[0-9]+([eE][-+]?[0-9]+)?",
    "boolean": "true|false",
    "array": r"\[.*\]",
    "object": r"\{.*\}",
    "string": ".+",
}
_TYPES = {"integer": "NUMBER", "number": "NUMBER", "boolean": "BOOLEAN"}


def metadata() -> dict[str, Any]:
    """The template as plain data, in the form of Dataflow's `TemplateMetadata`."""
    return {
        "name": "aggmc",
        "description": (
            "Transition matrices of Markov chains from noisy aggregate counts, from files or from Pub/Sub. A "
            "YAML file describes the run; every key of it can be given, or changed, by a parameter."
        ),
        # Sums must hold each record once, also where a worker fails.
        "supportsAtLeastOnce": False,
        "supportsExactlyOnce": True,
        "defaultStreamingMode": "EXACTLY_ONCE",
        "parameters": [
            {
                "name": "config",
                "label": "Config file",
                "helpText": "YAML file of the run; see docs/config.md. Without it, parameters must tell all.",
                "isOptional": True,
                "regexes": ["^gs://.+$"],
                "paramType": "GCS_READ_FILE",
            },
            {
                "name": "sdk_container_image",
                "label": "Image of the workers",
                "helpText": "The image that this template was built from: it holds all that workers need.",
                "isOptional": False,
                "regexes": [r"^\S+(:[\w.-]+|@sha256:[0-9a-f]{64})$"],
                "paramType": "TEXT",
            },
            *(_parameter(key) for key in keys() if not LEFT_OUT.fullmatch(key.path)),
        ],
    }


def page() -> str:
    """The file's text."""
    return json.dumps(metadata(), indent=1, ensure_ascii=False) + "\n"


def _parameter(key: Key) -> dict[str, Any]:
    kind, regex = _KNOWN.get(key.path) or (_type(key.schema), f"^({_shape(key.schema)})$")
    default = {"**required**": "required with its section", "none": "none"}.get(key.default, key.default)
    found: dict[str, Any] = {
        "name": key.option,
        "label": key.path,
        "helpText": _plain(f"{key.help}. Value: {key.text}. Default: {default}."),
        "isOptional": True,
        "regexes": [regex],
        "paramType": kind,
        "groupName": key.path.split(".")[0] if "." in key.path else "run",
    }
    if kind == "ENUM":
        found["enumOptions"] = [{"value": value} for value in key.schema["enum"]]
    return found


def _type(schema: dict[str, Any]) -> str:
    return "ENUM" if "enum" in schema else _TYPES.get(schema.get("type", ""), "TEXT")


def _shape(schema: dict[str, Any]) -> str:
    """A regular expression for the values of a JSON Schema, as an option takes them."""
    if "anyOf" in schema:
        return "|".join(_shape(one) for one in schema["anyOf"])
    if "enum" in schema:
        return "|".join(re.escape(value) for value in schema["enum"])
    if "pattern" in schema:
        return str(schema["pattern"]).strip("^$")
    return _SHAPES[schema.get("type", "string")]


def _plain(text: str) -> str:
    return (text[:1].upper() + text[1:]).replace("`", "")


if __name__ == "__main__":
    PATH.parent.mkdir(parents=True, exist_ok=True)
    PATH.write_text(page(), encoding="utf-8")

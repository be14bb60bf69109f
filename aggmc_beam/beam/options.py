"""Pipeline options: a config and changes to it, so that a launched job needs no other file."""

from __future__ import annotations

from typing import Any

from apache_beam.options.pipeline_options import PipelineOptions

from aggmc_beam.config import Config, load_config
from aggmc_beam.errors import InputError

_SHORT = {
    "input": "input.files",
    "output_directory": "output.directory",
    "estimator": "estimator",
    "refresh": "stream.refresh",
}


class AggmcOptions(PipelineOptions):  # type: ignore[misc]
    """`--config FILE`; `--set KEY=VALUE` changes any key, and the most common have options of their own."""

    @classmethod
    def _add_argparse_args(cls, parser: Any) -> None:
        parser.add_argument("--config", help="YAML file of the run, see docs/config.md")
        parser.add_argument("--set", action="append", default=[], help="KEY=VALUE, changes any key")
        for name, key in _SHORT.items():
            parser.add_argument(f"--{name}", help=f"changes {key}")


def config_of(options: AggmcOptions) -> tuple[Config, dict[str, Any]]:
    """The config that options describe, also as plain data."""
    if options.config is None:
        raise InputError("--config FILE is needed")
    given = {key: getattr(options, name) for name, key in _SHORT.items()}
    changes = [f"{key}={value}" for key, value in given.items() if value is not None]
    return load_config(options.config, [*changes, *options.set])

"""Pipeline options: a config and changes to it, so that a launched job needs no other file.

Every key of the config reference has an option, its name with dots made underscores: `--stream_refresh=30s`
changes `stream.refresh`. Importing this module makes the options known to Beam; pipelines of one's own that
use the transform alone do not import it, and their options may have any name.
"""

from __future__ import annotations

from typing import Any

from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import PipelineOptions

from aggmc_beam.beam.files import is_local
from aggmc_beam.config import Config, changed_config
from aggmc_beam.config.keys import keys
from aggmc_beam.config.reader import MAX_BYTES, read_yaml, read_yaml_file
from aggmc_beam.errors import InputError

#: Shorter names of two keys.
SHORT = {"input": "input.files", "refresh": "stream.refresh"}


class AggmcOptions(PipelineOptions):  # type: ignore[misc]
    """`--config FILE`, an option for every key, and `--set KEY=VALUE`, which comes last."""

    @classmethod
    def _add_argparse_args(cls, parser: Any) -> None:
        parser.add_argument("--config", help="YAML file of the run, also in the cloud; see docs/config.md")
        parser.add_argument("--set", action="append", default=[], help="KEY=VALUE, changes any key")
        for name, path in SHORT.items():
            parser.add_argument(f"--{name}", help=f"changes {path}")
        for key in keys():
            # argparse reads % as the start of a format.
            help = f"changes {key.path}: {key.help}; {key.text}".replace("%", "%%")
            parser.add_argument(f"--{key.option}", help=help)


def config_of(options: AggmcOptions) -> tuple[Config, dict[str, Any]]:
    """The config that options describe, also as plain data."""
    short = [(key, name) for name, path in SHORT.items() for key in keys() if key.path == path]
    given = [(key, getattr(options, name)) for key, name in [*short, *((k, k.option) for k in keys())]]
    changes = [key.change(value) for key, value in given if value is not None] + options.set
    if options.config is None:
        if not changes:
            raise InputError("--config FILE is needed, or options such as --input_files and --noise_model")
        return changed_config({}, changes)
    return changed_config(_read(options.config), changes, options.config)


def _read(path: str) -> Any:
    if is_local(path):
        return read_yaml_file(path)
    try:
        with FileSystems.open(path) as stream:
            data = stream.read(MAX_BYTES + 1)
        return read_yaml(data.decode("utf-8-sig"), path)
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8 text ({error.reason} at byte {error.start})") from None
    except OSError as error:
        raise InputError(f"cannot read {path!r}: {error}") from error

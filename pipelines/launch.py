"""Dataflow from the command line: prints the exact gcloud commands, and runs them with --execute.

    python pipelines/launch.py build  --project P --region R --bucket B
    python pipelines/launch.py run    --project P --region R --bucket B --config run.yaml --parameter lags=1
    python pipelines/launch.py update --project P --region R --bucket B --config run.yaml --tag 2
    python pipelines/launch.py drain  --project P --region R --job-id 2026-01-05_01_02_03-123

`build` makes the image and the Flex Template; `run` starts a job; `update` replaces a running stream and
keeps its state; `drain` ends a stream after all that has arrived is counted. docs/dataflow.md tells more.
"""

from __future__ import annotations

import argparse
import json
import re
import shlex
import subprocess  # nosec B404
import sys
from pathlib import Path

import aggmc_beam
from aggmc_beam.config import Config, changed_config
from aggmc_beam.config.keys import keys
from aggmc_beam.config.reader import read_yaml_file
from aggmc_beam.errors import InputError, nearest

METADATA = "configs/flex_template/metadata.json"
ROOT = Path(__file__).parent.parent
Command = list[str]


def build(options: argparse.Namespace) -> list[Command]:
    """The image, and the template that names it."""
    if not Path("pipelines/cloudbuild.yaml").exists():
        raise InputError("an image is built from the top of the repository; go there first")
    image, project = image_of(options), f"--project={options.project}"
    submit = ["gcloud", "builds", "submit", ".", project, f"--region={options.region}"]
    template = ["gcloud", "dataflow", "flex-template", "build", template_of(options), project]
    return [
        [*submit, "--config=pipelines/cloudbuild.yaml", f"--substitutions=_IMAGE={image}"],
        [*template, f"--image={image}", "--sdk-language=PYTHON", f"--metadata-file={METADATA}"],
    ]


def run(options: argparse.Namespace) -> list[Command]:
    """A job; a config on this machine is copied to the bucket first."""
    given = parameters(options)
    config = given.get("config")
    before = []
    streams = options.streaming
    if config is not None and not config.startswith("gs://"):
        streams = streams or read(config, given).input.pubsub is not None
        given["config"] = f"gs://{options.bucket}/configs/{options.job}.yaml"
        copy = ["gcloud", "storage", "cp", config, given["config"], f"--project={options.project}"]
        before.append(copy)
    command = ["gcloud", "dataflow", "flex-template", "run", options.job]
    flags = {
        "project": options.project,
        "region": options.region,
        "template-file-gcs-location": template_of(options),
        # A folder of the operator's bucket, not of this machine.
        "temp-location": f"gs://{options.bucket}/tmp",  # nosec B108
        "staging-location": f"gs://{options.bucket}/staging",
        "max-workers": options.max_workers,
        "worker-machine-type": options.machine_type,
        "service-account-email": options.service_account,
        "subnetwork": options.subnetwork,
    }
    command += [f"--{name}={value}" for name, value in flags.items() if value is not None]
    if options.subnetwork is not None:
        command.append("--disable-public-ips")
    if streams:
        command.append("--enable-streaming-engine")
    if options.action == "update":
        command.append("--update")
        if options.rename:
            renamed = dict(pair(text, "--rename") for text in options.rename)
            command.append(f"--transform-name-mappings={joined(renamed)}")
    return [*before, [*command, f"--parameters={joined(given)}"]]


def drain(options: argparse.Namespace) -> list[Command]:
    """The end of a stream; without its id, the command that tells it."""
    where = [f"--project={options.project}", f"--region={options.region}"]
    if options.job_id is None:
        named = [f"--filter=name={options.job}", "--format=value(id)"]
        return [["gcloud", "dataflow", "jobs", "list", *where, "--status=active", *named]]
    return [["gcloud", "dataflow", "jobs", "drain", options.job_id, *where]]


def parameters(options: argparse.Namespace) -> dict[str, str]:
    """The parameters of the template, each known to it and of the form that it asks for."""
    described = {p["name"]: p for p in json.loads((ROOT / METADATA).read_text("utf-8"))["parameters"]}
    given = {} if options.config is None else {"config": options.config}
    given |= {"sdk_container_image": image_of(options)}
    given |= dict(pair(text, "--parameter") for text in options.parameter)
    for name, value in given.items():
        if name not in described:
            raise InputError(f"--parameter {name} is not known; {nearest(name, list(described))}")
        local = name == "config" and not value.startswith("gs://")
        if not local and not all(re.fullmatch(regex, value) for regex in described[name]["regexes"]):
            raise InputError(f"--parameter {name}={value} does not fit. {described[name]['helpText']}")
    if len(given) == 1:
        raise InputError("--config FILE is needed, or --parameter NAME=VALUE for each key")
    return given


def read(config: str, given: dict[str, str]) -> Config:
    """The config of a run, with the changes that its parameters make."""
    changes = [key.change(given[key.option]) for key in keys() if key.option in given]
    return changed_config(read_yaml_file(config), changes, config)[0]


def image_of(options: argparse.Namespace) -> str:
    return f"{options.region}-docker.pkg.dev/{options.project}/{options.repository}/aggmc:{options.tag}"


def template_of(options: argparse.Namespace) -> str:
    return f"gs://{options.bucket}/templates/aggmc-{options.tag}.json"


def pair(text: str, option: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise InputError(f"{option} needs NAME=VALUE; got {text!r}")
    return name, value


def joined(given: dict[str, str]) -> str:
    """Pairs as gcloud takes them; where a value has a comma, another separator is declared.

    >>> joined({"lags": "1", "states": "[a, b]"})
    '^;^lags=1;states=[a, b]'
    """
    text = "".join(f"{name}={value}" for name, value in given.items())
    separator = next((c for c in ",;|~#@%!" if c not in text), None)
    if separator is None:
        raise InputError("the values use every character that could separate them; put them in the config")
    pairs = separator.join(f"{name}={value}" for name, value in given.items())
    # A leading ^ declares a separator, so a plain list must not begin with one.
    return pairs if separator == "," and not pairs.startswith("^") else f"^{separator}^{pairs}"


def arguments(given: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("action", choices=list(ACTIONS))
    parser.add_argument("--project", required=True, help="id of the Google Cloud project")
    parser.add_argument("--region", required=True, help="of the job and of the image, such as europe-west1")
    parser.add_argument("--bucket", help="for templates, configs and temporary files; no gs:// before it")
    parser.add_argument("--job", default="aggmc", help="name of the job (default: aggmc)")
    parser.add_argument("--job-id", help="drain: which job; without it, the command that tells it is printed")
    parser.add_argument("--config", help="YAML file of the run, here or at gs://")
    parser.add_argument(
        "--parameter",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help=f"a parameter of the template, see {METADATA}; may be repeated",
    )
    parser.add_argument("--tag", default=aggmc_beam.__version__, help="of the image and the template")
    parser.add_argument("--repository", default="aggmc", help="of Artifact Registry (default: aggmc)")
    parser.add_argument("--max-workers", type=int, help="upper bound of autoscaling")
    parser.add_argument("--machine-type", help="of the workers, such as n2-standard-2")
    parser.add_argument("--service-account", help="e-mail address that the workers run as")
    parser.add_argument("--subnetwork", help="of the workers; they then have no public addresses")
    parser.add_argument("--streaming", action="store_true", help="a config at gs:// reads Pub/Sub")
    parser.add_argument(
        "--rename",
        action="append",
        default=[],
        metavar="OLD=NEW",
        help="update: a step that has another name now; may be repeated",
    )
    parser.add_argument("--execute", action="store_true", help="run the commands, not only print them")
    options = parser.parse_args(given)
    if options.action != "drain" and options.bucket is None:
        parser.error("--bucket is needed")
    return options


ACTIONS = {"build": build, "run": run, "update": run, "drain": drain}


def main(given: list[str] | None = None) -> int:
    options = arguments(given)
    try:
        commands = ACTIONS[options.action](options)
    except InputError as error:
        print(f"pipelines/launch.py: {error}", file=sys.stderr)
        return 2
    for command in commands:
        print(shlex.join(command), flush=True)
        if options.execute:
            # A list without a shell, printed above, and only of what the operator gave.
            done = subprocess.run(command, check=False)  # nosec B603
            if done.returncode:
                return done.returncode
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""The runners that the suite knows: how a pipeline is sent to each."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "clusters"))

import flink
import spark
from prism import prism
from store import BEAM

#: A job need not be sent the list of installed packages, which takes pip seconds to tell.
QUICK = "--experiments=disable_logging_submission_environment"


@dataclass(frozen=True)
class Runner:
    """Beam's options for a runner that is up, and the versions of what runs."""

    name: str
    options: tuple[str, ...]
    versions: str
    stream: tuple[str, ...] = ()
    #: Ends what still runs after Beam has cancelled a stream.
    cancel: Callable[[], None] = lambda: None


def started(name: str) -> Runner:
    """The runner, started if it is a cluster that is not up; `Missing` if it cannot be had here."""
    return STARTERS[name](name)


def _fnapi(name: str) -> Runner:
    return Runner(name, ("--runner=FnApiRunner",), f"Beam {BEAM}")


def _fnapi_multi(name: str) -> Runner:
    several = ("--direct_num_workers=2", "--direct_running_mode=multi_processing")
    return Runner(name, ("--runner=FnApiRunner", *several), f"Beam {BEAM}, 2 processes")


def _prism(name: str) -> Runner:
    return Runner(name, ("--runner=PrismRunner", f"--prism_location={prism()}", QUICK), f"Prism {BEAM}")


def _flink(name: str) -> Runner:
    made = flink.up()
    workers = ("--environment_type=LOOPBACK",)
    if name == "flink-external":
        workers = ("--environment_type=EXTERNAL", f"--environment_config={flink.WORKER_POOL}")
    return Runner(
        name,
        (
            *("--runner=PortableRunner", f"--job_endpoint={flink.JOB_SERVER}"),
            *(f"--parallelism={flink.PARALLELISM}", flink.KEEP_WORKERS, QUICK, *workers),
        ),
        f"Flink {made.flink}, {made.runner}, Beam {BEAM} for Python",
        # Otherwise what a bundle gives that a checkpoint ends is held back until the next one begins: where
        # nothing follows, as behind the impulse that starts a source, for ever.
        ("--checkpointing_interval=1000", "--finish_bundle_before_checkpointing"),
        flink.cancel,
    )


def _spark(name: str) -> Runner:
    versions = spark.up()
    job = ("--runner=PortableRunner", f"--job_endpoint={spark.JOB_SERVER}", "--environment_type=LOOPBACK")
    return Runner(name, (*job, QUICK), f"{versions}, Beam {BEAM} for Python")


STARTERS = {
    "fnapi": _fnapi,
    "fnapi-multi": _fnapi_multi,
    "prism": _prism,
    "flink": _flink,
    "flink-external": _flink,
    "spark": _spark,
}

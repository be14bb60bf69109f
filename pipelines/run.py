"""What a runner launches: `python pipelines/run.py [CONFIG] [--KEY=VALUE ...] [Beam options]`.

    python pipelines/run.py configs/census_batch.yaml --runner=DataflowRunner --project=P \
        --region=R --temp_location=gs://B/tmp --setup_file=./setup.py --estimator=mom

Every key of docs/config.md is an option, its name with dots made underscores: `--noise_model=binomial`,
`--stream_refresh=30s`. `--set KEY=VALUE` does the same. `pipelines/launch.py` puts it on
Dataflow.
"""

from __future__ import annotations

import sys

from apache_beam.options.pipeline_options import PipelineOptions

from aggmc_beam.beam.options import AggmcOptions, config_of
from aggmc_beam.beam.run import run
from aggmc_beam.errors import InputError


def main(arguments: list[str] | None = None) -> None:
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given and not given[0].startswith("-"):
        given[0] = f"--config={given[0]}"
    config, plain = config_of(PipelineOptions(given).view_as(AggmcOptions))
    # Workers have the package, so nothing of this script needs to be pickled for them.
    run(config, plain, ["--no_save_main_session", *given])


if __name__ == "__main__":
    try:
        main()
    except InputError as error:
        sys.exit(f"pipelines/run.py: {error}")

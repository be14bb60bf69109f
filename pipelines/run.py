"""What a runner launches: `python pipelines/run.py CONFIG [--set key=value ...] [Beam options]`.

    python pipelines/run.py configs/census_batch.yaml --runner=DataflowRunner --project=P \
        --region=R --temp_location=gs://B/tmp --setup_file=./setup.py --set estimator=mom
"""

from __future__ import annotations

import sys

from apache_beam.options.pipeline_options import PipelineOptions

from aggmc_beam.beam.options import AggmcOptions, config_of
from aggmc_beam.beam.run import run


def main(arguments: list[str] | None = None) -> None:
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given and not given[0].startswith("-"):
        given[0] = f"--config={given[0]}"
    config, plain = config_of(PipelineOptions(given).view_as(AggmcOptions))
    own = ("--config", "--set", "--input", "--output_directory", "--estimator", "--refresh")
    run(config, plain, [a for a in given if a.split("=")[0] not in own])


if __name__ == "__main__":
    main()

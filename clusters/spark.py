"""Spark in one process on this machine, with Beam's job server: it runs as long as what called `up`.

Jobs go to `--runner=PortableRunner --job_endpoint=JOB_SERVER --environment_type=LOOPBACK`. Beam's portable Spark
runner takes bounded pipelines; its artifact of Beam 2.62 is the newest that registries have.
"""

from __future__ import annotations

import atexit
import shutil
import socket
import subprocess
import time
from pathlib import Path

from store import cache, fetched, tool

BEAM, SPARK = "2.62.0", "3.5.0"
HOST, PORT = "localhost", 8899
JOB_SERVER = f"{HOST}:{PORT}"
FOLDER = Path(__file__).parent.parent / "out" / "spark"
PATIENCE = 120.0
#: What Spark needs of Java 17, as its own scripts open it.
OPENS = (
    "java.base/java.lang", "java.base/java.lang.invoke", "java.base/java.io", "java.base/java.net",
    "java.base/java.nio", "java.base/java.util", "java.base/java.util.concurrent",
    "java.base/java.util.concurrent.atomic", "java.base/sun.nio.ch", "java.base/sun.nio.cs",
    "java.base/sun.security.action", "java.base/sun.util.calendar",
)  # fmt: skip


def up() -> str:
    """Start the job server and wait until jobs can be submitted; what runs. `Missing` if it cannot be had."""
    tool("java", "to run Spark")
    jars = _jars()
    FOLDER.mkdir(parents=True, exist_ok=True)
    with open(FOLDER / "jobserver.log", "ab") as log:
        process = subprocess.Popen(
            [
                *("java", "-Xmx1500m", *(f"--add-opens={name}=ALL-UNNAMED" for name in OPENS)),
                *("-cp", f"{jars}/*", "org.apache.beam.runners.spark.SparkJobServerDriver"),
                *(f"--job-host={HOST}", f"--job-port={PORT}", "--artifact-port=0", "--expansion-port=0"),
                *("--spark-master-url=local[2]", f"--artifacts-dir={FOLDER / 'artifacts'}"),
            ],
            cwd=FOLDER,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    atexit.register(process.kill)
    deadline = time.monotonic() + PATIENCE
    while not _listens():
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"Spark did not start; see {FOLDER / 'jobserver.log'}")
        time.sleep(0.2)
    return f"Spark {SPARK}, beam-runners-spark-3:{BEAM}"


def _jars() -> Path:
    """The folder with all jars, fetched by Maven, which checks their checksums (-C)."""
    target = cache(f"beam-runners-spark-3-{BEAM}-{SPARK}")
    if target.exists():
        return target
    maven, partial = tool("mvn", "to fetch Beam's job server"), target.with_suffix(".partial")
    shutil.rmtree(partial, ignore_errors=True)
    fetched(
        [
            *(maven, "--batch-mode", "--quiet", "-C"),
            *("-f", Path(__file__).with_name("spark_job_server.xml"), f"-Dbeam={BEAM}", f"-Dspark={SPARK}"),
            *(f"-DoutputDirectory={partial}", "-DincludeScope=runtime", "dependency:copy-dependencies"),
        ],
        f"beam-runners-spark-3 {BEAM}",
    )
    partial.rename(target)
    return target


def _listens() -> bool:
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex((HOST, PORT)) == 0

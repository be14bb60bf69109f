"""Flink from PyPI and Beam's job server for it from Maven, in the cache."""

from __future__ import annotations

import shutil
import sys
import tarfile
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

from store import BEAM, Missing, cache, fetched, tool

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Pair:
    """A version of Flink, and the artifact of Beam that submits to it."""

    flink: str
    artifact: str
    beam: str


#: The first that the registries have is taken. The second is older than the installed Beam; the protocol
#: between Beam's Python and a job server has stayed the same.
PAIRS = (
    Pair("2.2.1", "beam-runners-flink-2.2-job-server", BEAM),
    Pair("1.19.3", "beam-runners-flink-1.19", "2.62.0"),
)


@dataclass(frozen=True)
class Distribution:
    """What a cluster is started from: Flink's folder, and the folder with the jars of the job server."""

    flink: str
    runner: str
    home: Path
    job_server: Path


def distribution() -> Distribution:
    """The newest pair that can be had; `Missing` says why there is none."""
    refused = []
    cached = [pair for pair in PAIRS if _jars(pair).exists()]
    for pair in cached or PAIRS:
        try:
            jars = _jars(pair)
            if not jars.exists():
                _fetch_job_server(pair, jars)
            home = cache(f"flink-{pair.flink}")
            if not home.exists():
                _fetch_flink(pair.flink, home)
            _link(jars, home / "lib")
        except Missing as error:
            refused.append(str(error))
        else:
            return Distribution(pair.flink, f"{pair.artifact}:{pair.beam}", home, jars)
    raise Missing("; ".join(refused))


def _jars(pair: Pair) -> Path:
    return cache(f"{pair.artifact}-{pair.beam}")


def _fetch_job_server(pair: Pair, target: Path) -> None:
    """The artifact with all that it needs. Maven checks its checksums (-C)."""
    maven = tool("mvn", "to fetch Beam's job server")
    with _partial(target) as folder:
        fetched(
            [
                *(maven, "--batch-mode", "--quiet", "-C", "-f", HERE / "job_server.xml"),
                *(f"-Dartifact={pair.artifact}", f"-Dbeam={pair.beam}", f"-DoutputDirectory={folder}"),
                *("-DincludeScope=runtime", "dependency:copy-dependencies"),
            ],
            f"{pair.artifact} {pair.beam}",
        )


def _fetch_flink(version: str, target: Path) -> None:
    """`apache-flink-libraries` holds the jars, `apache-flink` the scripts; pip checks both against hashes."""
    with _partial(target) as folder, tempfile.TemporaryDirectory() as downloads:
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--quiet", "--no-deps"]
        pip += ["--require-hashes", "--dest", downloads]
        fetched([*pip, "-r", HERE / f"flink-{version}-libraries.txt"], f"Flink {version}")
        # The scripts are the same for every Python; one named wheel has one hash.
        wheel = ["--only-binary=:all:", "--python-version=3.11", "--platform=manylinux2014_x86_64"]
        fetched([*pip, *wheel, "-r", HERE / f"flink-{version}-scripts.txt"], f"Flink {version}")
        for package in Path(downloads).iterdir():
            _unpack(package, folder)
    for script in (target / "bin").glob("*.sh"):
        script.chmod(0o755)


def _link(jars: Path, library: Path) -> None:
    """Beam's jars among the cluster's own: loaded once, and not anew by every job."""
    for jar in jars.glob("*.jar"):
        link = library / jar.name
        if not jar.name.startswith(("flink-", "slf4j-")) and not link.is_symlink():
            link.symlink_to(jar)


def _unpack(package: Path, folder: Path) -> None:
    """The parts of a Flink folder, which a wheel has in pyflink/ and a source archive in deps/."""
    with tempfile.TemporaryDirectory() as everything:
        if package.suffix == ".whl":
            with zipfile.ZipFile(package) as archive:
                archive.extractall(everything)
            root = Path(everything) / "pyflink"
        else:
            with tarfile.open(package) as archive:
                # Python before 3.11.4 knows no filters; the archive is the one of its hash.
                archive.extraction_filter = getattr(tarfile, "data_filter", None)
                archive.extractall(everything)
            [top] = Path(everything).iterdir()
            root = top / "deps"
        for part in ("bin", "conf", "lib", "plugins"):
            if (root / part).exists():
                shutil.copytree(root / part, folder / part, dirs_exist_ok=True)


class _partial:
    """A folder that appears under its name only when it is complete."""

    def __init__(self, target: Path) -> None:
        self.target, self.folder = target, target.with_name(f"{target.name}.partial")

    def __enter__(self) -> Path:
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        return self.folder

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self.folder.rename(self.target)
        else:
            shutil.rmtree(self.folder, ignore_errors=True)

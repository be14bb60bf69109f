"""Packaging. Dataflow workers install this package, so the core stays light."""

import re
from pathlib import Path

from setuptools import find_packages, setup

HERE = Path(__file__).parent
VERSION = re.search(r'__version__ = "(.+)"', (HERE / "aggmc_beam/__init__.py").read_text()).group(1)

# Polars reads every format without pyarrow; PyYAML reads configs; threadpoolctl keeps BLAS to one thread
# while the work is spread over threads of ours. Beam is imported by the Beam engine only. Beam and Polars are ranges
# whose ends are tested: the newest by `make test`, the oldest by `make oldest`.
CORE = [
    "apache-beam>=2.60,<3",
    "numpy>=1.26,<3",
    "polars>=1.34,<3",
    "pyyaml>=6,<7",
    "scipy>=1.11,<2",
    "threadpoolctl>=3.1,<4",
]
GCP = ["apache-beam[gcp]>=2.60,<3"]
YAML = ["apache-beam[yaml]>=2.60,<3"]
# Workbooks: Polars reads them by the one and writes them by the other.
EXCEL = ["fastexcel>=0.12,<1", "xlsxwriter>=3,<4"]
REPORT = ["matplotlib>=3.8,<4"]
TABLES = ["duckdb>=1,<2", "pandas>=2,<4", "xarray>=2024.1"]  # whose tables are read; none is needed
TEST = ["hypothesis>=6.100,<7", "jsonschema>=4,<5", "pytest>=8,<10", "pytest-xdist>=3.5,<4"]
LINT = ["import-linter>=2.1,<3", "mypy>=1.10,<3", "ruff>=0.6,<1", "types-PyYAML>=6,<7"]
BUILD = ["setuptools>=68,<83", "wheel>=0.43,<1"]

setup(
    name="aggmc-beam",
    version=VERSION,
    description="Transition matrices of Markov chains from noisy aggregate counts",
    long_description=(HERE / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    license_files=["LICENSE"],
    keywords="markov-chain aggregate-data privacy ecological-inference apache-beam",
    classifiers=[
        "Development Status :: 4 - Beta",
        "Intended Audience :: Science/Research",
        "Intended Audience :: Developers",
        "Operating System :: OS Independent",
        "Programming Language :: Python :: 3",
        *(f"Programming Language :: Python :: 3.{minor}" for minor in range(10, 14)),
        "Topic :: Scientific/Engineering :: Mathematics",
        "Typing :: Typed",
    ],
    python_requires=">=3.10",
    packages=find_packages(include=["aggmc_beam", "aggmc_beam.*"]),
    package_data={"aggmc_beam": ["py.typed", "report/page.css", "report/page.js"]},
    entry_points={"console_scripts": ["aggmc = aggmc_beam.cli:main"]},
    install_requires=CORE,
    extras_require={
        "gcp": GCP,
        # What the image of Dataflow workers holds; the package is built in it.
        "image": GCP + REPORT + BUILD,
        "yaml": YAML,
        "report": REPORT,
        "excel": EXCEL,
        "test": TEST + TABLES,
        "dev": GCP + YAML + REPORT + EXCEL + TEST + TABLES + LINT + BUILD,
    },
)

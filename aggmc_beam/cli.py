"""The command line: `aggmc init`, `check`, `diagnose`, `run`, `compare`, `report`, `simulate`, `moments`, and uses of
results.

Exit codes: 0 done, 1 the work failed, 2 the command or the config is wrong.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import aggmc_beam
from aggmc_beam import logs
from aggmc_beam.completion import SHELLS, script
from aggmc_beam.errors import InputError, UsageError
from aggmc_beam.text import say

DONE, FAILED, USAGE = 0, 1, 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; the exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    beam_options: list[str] = []
    if "--" in given:
        at = given.index("--")
        given, beam_options = given[:at], given[at + 1 :]
    options = parser().parse_args(given)
    options.beam_options = beam_options
    options.log = logs.configure() if options.log_format == "json" else None
    end_like_interrupt()
    try:
        options.command(options)
    except UsageError as error:
        return _fail(error, USAGE, options)
    except InputError as error:
        return _fail(error, FAILED, options)
    except KeyboardInterrupt:
        return _tell("interrupted; nothing was written", FAILED, options, before="\n")
    except BrokenPipeError:  # the reader of our output has gone, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except Exception as error:
        if options.debug:
            raise
        text = f"error: {type(error).__name__}: {_one_line(error)}"
        return _tell(text, FAILED, options, "this should not happen; run it again with --debug and report it")
    return DONE


def _fail(error: InputError, code: int, options: argparse.Namespace) -> int:
    if options.debug:
        raise error
    text = _one_line(error)
    key = _key_of(text)
    hint = {
        USAGE: "`aggmc --help` shows the commands" if key else _USAGE_HINT,
        FAILED: "`aggmc check CONFIG` shows how the input is read; --debug shows where this arose",
    }[code]
    return _tell(f"error: {text}", code, options, f"see {key} in docs/config.md; {hint}" if key else hint)


_USAGE_HINT = "docs/config.md lists every key; `aggmc --help` shows the commands"
#: Words of errors about data, and the key of a config that has to do with them; the first that is found counts.
_ABOUT = (
    ("max_rejected", "max_rejected"),
    ("one step apart", "input.step"),
    ("no column", "input.columns"),
    ("format of", "input.format"),
    ("UTF-8", "input.files"),
    ("population", "population"),
    ("noise", "noise"),
    ("all rows were rejected", "input.columns"),
    ("is a record", "input.columns"),
    ("state", "states"),
)


def _key_of(text: str) -> str | None:
    """The key of a config that an error is about: one that it names, or one that its words speak of."""
    from aggmc_beam.config.keys import keys

    named = [key.path for key in keys() if "." in key.path and re.search(rf"\b{re.escape(key.path)}\b", text)]
    if named:
        return max(named, key=len)
    return next((key for word, key in _ABOUT if word in text), None)


def _tell(text: str, code: int, options: argparse.Namespace, hint: str = "", before: str = "") -> int:
    """Why a command ends with this exit code, on stderr."""
    if options.log is not None:
        extra = {"exit_code": code, **({"hint": hint} if hint else {})}
        logs.LOGGER.error(text.removeprefix("error: "), extra=extra)
        return code
    say(f"{before}aggmc: {text}", sys.stderr)
    if hint:
        print(f"  hint: {hint}", file=sys.stderr)
    return code


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())


def end_like_interrupt() -> None:
    """Let a polite kill clean up, as Ctrl-C does."""

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    if hasattr(signal, "SIGTERM"):
        try:
            signal.signal(signal.SIGTERM, interrupt)
        except ValueError:  # not in the main thread
            return


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="aggmc",
        description="Transition matrices of Markov chains from noisy aggregate counts.",
        epilog=(
            "examples:\n"
            "  aggmc init data/counts.csv\n"
            "  aggmc check configs/quickstart.yaml\n"
            "  aggmc run configs/quickstart.yaml --set estimator=mom\n"
            "  aggmc moments estimate out/moments.aggmc --noise binomial:0.4\n"
        ),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _add_log_format(top, "text")
    top.add_argument("--version", action="version", version=f"aggmc {aggmc_beam.__version__}")
    commands = top.add_subparsers(metavar="COMMAND", required=True)
    _add_run(commands)
    _add_check(commands)
    _add_diagnose(commands)
    _add_simulate(commands)
    _add_report(commands)
    _add_compare(commands)
    _add_moments(commands)
    _add_uses(commands)
    _add_init(commands)
    _add_completion(commands)
    return top


def _command(commands: Any, name: str, function: Any, help: str, examples: str) -> argparse.ArgumentParser:
    made: argparse.ArgumentParser = commands.add_parser(
        name,
        help=help,
        description=f"{help[0].upper()}{help[1:]}.",
        epilog=f"examples:\n{examples}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("--debug", action="store_true", help="show the traceback of an error")
    _add_log_format(made, argparse.SUPPRESS)
    made.set_defaults(command=_lazily(function))
    return made


def _add_log_format(made: argparse.ArgumentParser, default: str) -> None:
    made.add_argument(
        "--log-format", choices=["text", "json"], default=default, help="of stderr; json is one object a line"
    )


def _lazily(name: str) -> Any:
    """A command that is imported when it is run: Polars takes a moment."""

    def command(options: argparse.Namespace) -> None:
        module, _, function = name.rpartition(".")
        getattr(import_module(f"aggmc_beam.{module or 'commands'}"), function)(options)

    return command


def _add_config(made: argparse.ArgumentParser) -> None:
    made.add_argument("config", metavar="CONFIG", help="YAML file, see docs/config.md")
    made.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="change a key of the config"
    )


def _add_run(commands: Any) -> None:
    made = _command(
        commands,
        "run",
        "run",
        "estimate as a config says",
        "  aggmc run configs/quickstart.yaml\n"
        "  aggmc run day.yaml --set input.files=data/tuesday.csv --set input.resume=out/moments\n",
    )
    _add_config(made)
    made.add_argument("--engine", choices=["local", "beam"], help="instead of the config's")
    made.add_argument("--quiet", action="store_true", help="print no table")
    made.add_argument("--whole", action="store_true", help="print every matrix, however wide")
    made.add_argument(
        "--wait", action="store_true", help="wait while another run writes to the same directory"
    )


def _add_check(commands: Any) -> None:
    made = _command(
        commands,
        "check",
        "check",
        "validate a config and its input, and tell what a run would do",
        "  aggmc check configs/census_batch.yaml\n",
    )
    _add_config(made)


def _add_diagnose(commands: Any) -> None:
    made = _command(
        commands,
        "diagnose",
        "diagnose",
        "tell what the counts can tell of moves, and what breaks the model",
        "  aggmc diagnose configs/quickstart.yaml\n  aggmc diagnose day.yaml --precision 0.02 --json\n",
    )
    _add_config(made)
    made.add_argument(
        "--precision", type=float, default=0.05, help="half width of intervals that is wanted (0.05)"
    )
    made.add_argument("--json", action="store_true", help="one object a group instead of text")


def _add_simulate(commands: Any) -> None:
    made = _command(
        commands,
        "simulate",
        "simulate",
        "draw data of a known chain into a file",
        "  aggmc simulate --config configs/quickstart.yaml\n"
        "  aggmc simulate --states home,work,other --steps 500 --population 1000 \\\n"
        "      --noise binomial:0.5 --layout long -o data/simulated.csv\n",
    )
    made.add_argument("--config", metavar="CONFIG", help="take all settings from a config's simulate section")
    made.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="change a key of the config"
    )
    made.add_argument("-o", "--output", metavar="FILE", help=".csv, .jsonl or .parquet")
    made.add_argument("--states", default="4", help="how many, or names with commas between (4)")
    made.add_argument("--steps", type=int, default=1000, help="time steps (1000)")
    made.add_argument("--realizations", type=int, default=1, help="independent realizations (1)")
    made.add_argument("--population", type=int, default=1000, help="individuals in each (1000)")
    made.add_argument("--noise", default="exact", help="such as binomial:0.5, or a YAML mapping (exact)")
    made.add_argument("--layout", choices=["wide", "long"], default="wide", help="(wide)")
    made.add_argument("--seed", type=int, default=0, help="(0)")


def _add_report(commands: Any) -> None:
    made = _command(
        commands,
        "report",
        "report",
        "write the HTML report of a result",
        "  aggmc report out/estimates.jsonl\n  aggmc report out/ -o report.html\n",
    )
    made.add_argument("result", metavar="RESULT", help="estimates.jsonl, or the directory of a run")
    made.add_argument("-o", "--output", metavar="FILE", help="(report.html beside the result)")


def _add_compare(commands: Any) -> None:
    made = _command(
        commands,
        "compare",
        "compare",
        "tell how matrices differ: of two runs, of two groups or of two cells",
        "  aggmc compare out/monday out/tuesday\n"
        "  aggmc compare out --groups north south -o difference.csv\n",
    )
    made.add_argument("first", metavar="A", help="estimates.jsonl, or the directory of a run")
    made.add_argument("second", metavar="B", nargs="?", help="another; groups and cells are matched by name")
    made.add_argument("--groups", nargs=2, metavar="GROUP", help="two groups of A")
    made.add_argument(
        "--cells", nargs=2, metavar="CELL", help="two cells of A: steps, phases or window starts"
    )
    made.add_argument("--level", type=float, help="of the intervals (that of the estimates)")
    made.add_argument("-o", "--output", metavar="FILE", help=".csv, .json, or .png or .svg for a picture")


def _add_init(commands: Any) -> None:
    made = _command(
        commands,
        "init",
        "init",
        "write a first config from a look at the data",
        "  aggmc init data/counts.csv\n  aggmc init 'data/*.parquet' -o mobility.yaml\n",
    )
    made.add_argument("files", metavar="DATA", help="path or glob of files of counts")
    made.add_argument("-o", "--output", metavar="FILE", help="(named as the data, .yaml, in this directory)")


def _add_completion(commands: Any) -> None:
    made = _command(
        commands,
        "completion",
        "completion",
        "print the script by which a shell completes aggmc",
        "  source <(aggmc completion bash)\n"
        "  aggmc completion fish > ~/.config/fish/completions/aggmc.fish\n",
    )
    made.add_argument("shell", choices=SHELLS, help="of the script")
    made.set_defaults(command=lambda options: print(script(parser(), options.shell), end=""))


def _add_moments(commands: Any) -> None:
    made = commands.add_parser("moments", help="show, join and re-estimate saved moments")
    inner = made.add_subparsers(metavar="ACTION", required=True)
    merge = _command(
        inner,
        "merge",
        "moments_merge",
        "join the moments of runs over different records",
        "  aggmc moments merge monday.aggmc tuesday.aggmc -o both.aggmc\n",
    )
    merge.add_argument("files", nargs="+", metavar="FILE")
    merge.add_argument("-o", "--output", required=True, metavar="FILE")
    merge.add_argument(
        "--allow-overlap",
        action="store_true",
        help="merge also files that share records, which count twice then",
    )
    show = _command(
        inner,
        "show",
        "moments_show",
        "tell what saved moments hold",
        "  aggmc moments show out/moments.aggmc\n",
    )
    show.add_argument("file", metavar="FILE")
    again = _command(
        inner,
        "estimate",
        "moments_estimate",
        "estimate again from saved moments, under other settings",
        "  aggmc moments estimate out/moments.aggmc --noise binomial:0.4 --estimator mom\n",
    )
    again.add_argument("file", metavar="FILE")
    again.add_argument("--noise", default="exact", help="such as binomial:0.5, or a YAML mapping (exact)")
    again.add_argument("--population", default="estimate", help="a number, or estimate (estimate)")
    again.add_argument("--estimator", default="auto", help="(auto)")
    again.add_argument("--chain", choices=["saved", "stationary"], default="saved", help="(saved)")
    again.add_argument("--level", type=float, default=0.95, help="of the intervals (0.95)")
    again.add_argument("-o", "--output", metavar="FILE", help="write JSON lines instead of a table")


def _add_uses(commands: Any) -> None:
    made = _add_use(commands, "flows", "tell how many moved from each state to each other in every step",
                    "  aggmc flows out/ -o flows.parquet\n")  # fmt: skip
    made = _add_use(commands, "forecast", "forecast the counts of the next steps, with bands",
                    "  aggmc forecast out/ --steps 24\n"
                    "  aggmc forecast out/ --set input.files=data/today.csv -o forecast.csv\n")  # fmt: skip
    made.add_argument("--steps", type=_positive, default=12, help="how far (12)")
    made = _add_use(commands, "alarms", "tell which counts are not what those before them led to expect",
                    "  aggmc alarms out/ --rate 0.01\n")  # fmt: skip
    made.add_argument("--rate", type=_rate, default=0.01,
                      help="part of the steps in which nothing happened that raise an alarm (0.01)")  # fmt: skip
    made = _command(
        commands,
        "change",
        "commands_uses.change",
        "test whether the matrix changed, along windows or between runs, and date it",
        "  aggmc change out/                        # a run whose chain has windows\n"
        "  aggmc change out/may out/june out/july   # runs in their order\n",
    )
    made.add_argument(
        "results", nargs="+", metavar="RESULT", help="estimates.jsonl, or the directory of a run"
    )


def _add_use(commands: Any, name: str, help: str, examples: str) -> argparse.ArgumentParser:
    made = _command(commands, name, f"commands_uses.{name}", help, examples)
    made.add_argument("result", metavar="RESULT", help="directory of a run, or its estimates.jsonl")
    made.add_argument("-o", "--output", metavar="FILE", help=".parquet or .csv, instead of printing")
    made.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE",
        help="change a key of the run's config, such as input.files to take other records",
    )  # fmt: skip
    return made


def _positive(given: str) -> int:
    found = int(given)
    if found < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1; got {given}")
    return found


def _rate(given: str) -> float:
    found = float(given)
    if not 0 < found < 1:
        raise argparse.ArgumentTypeError(f"must lie between 0 and 1; got {given}")
    return found


if __name__ == "__main__":
    sys.exit(main())

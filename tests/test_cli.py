import json
import os
import shutil
import signal
import subprocess
import sys
from io import StringIO
from pathlib import Path

import frames
import numpy as np
import pytest

import aggmc_beam as am
from aggmc_beam.cli import main

CONFIGS = Path(__file__).parent.parent / "configs"


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A run's directory with data, a config and its path."""
    monkeypatch.chdir(tmp_path)
    frames.save(frames.wide(frames.counts(K=25, T=12)), tmp_path / "data.csv")
    (tmp_path / "run.yaml").write_text(
        "states: [home, work, ünterwegs]\n"
        "input: {files: data.csv}\n"
        "noise: {model: binomial, alpha: 0.5}\n"
        "population: 200\nestimator: mom\n"
        "output: {directory: out, moments: true}\n",
        encoding="utf-8",
    )
    return tmp_path


def read(path):
    return [json.loads(line) for line in Path(path).read_text(encoding="utf-8").splitlines()]


def test_run_writes_estimates_rejections_and_moments(here, capsys):
    with open(here / "data.csv", "a") as stream:
        stream.write("1,99,x,2,3\n")
    assert main(["run", "run.yaml"]) == 0
    printed = capsys.readouterr()
    assert "300 records of 25 realizations, 275 pairs" in printed.out
    assert "1 rejected" in printed.out
    assert printed.err == ""
    assert sorted(p.name for p in Path("out").iterdir()) == [
        "estimates.jsonl", "moments.aggmc", "rejected.jsonl", "run.json",
    ]  # fmt: skip
    [estimate] = read("out/estimates.jsonl")
    for key in (
        "group", "window", "cell", "states", "estimator", "transition_matrix", "standard_error", "lower",
        "upper", "stationary", "population", "noise", "baselines", "counts", "diagnostics", "refresh",
    ):  # fmt: skip
        assert key in estimate
    assert estimate["states"][2] == "ünterwegs"
    [rejected] = read("out/rejected.jsonl")
    assert rejected["source"] == {"file": "data.csv", "row": 302}
    assert rejected["reason"] == "the count of 'home' is 'x', not a number"
    assert json.loads(Path("out/run.json").read_text())["ledger"]["rejected"] == 1


def test_set_changes_a_key_and_resume_goes_on(here, capsys):
    assert main(["run", "run.yaml", "--set", "output.directory=a", "--quiet"]) == 0
    again = ["--set", "input.resume=a/moments", "--set", "output.directory=b", "--set", "estimator=simplex"]
    assert main(["run", "run.yaml", *again]) == 0
    [a], [b] = read("a/estimates.jsonl"), read("b/estimates.jsonl")
    assert b["estimator"] == "simplex"
    assert (a["counts"]["records"], b["counts"]["duplicates"]) == (300, 300)


FAILURES = {
    "no config": (["run", "none.yaml"], 2, "cannot read 'none.yaml'"),
    "unknown key": (["run", "run.yaml", "--set", "estimater=mom"], 2, "did you mean 'estimator'"),
    "no file": (["run", "run.yaml", "--set", "input.files=none.csv"], 2, "cannot read 'none.csv'"),
    "no column": (["check", "run.yaml", "--set", "input.columns.time=hour"], 2, "no column 'hour'"),
    "nothing usable": (
        ["run", "run.yaml", "--set", "input.step=100", "--set", "max_rejected=1.0"],
        1,
        "no two records are one step apart",
    ),
    "too many rejected": (
        ["run", "run.yaml", "--set", "input.step=3", "--set", "max_rejected=5"],
        1,
        "max_rejected",
    ),
    "Beam options": (["run", "run.yaml", "--", "--runner=x"], 2, "are for the Beam engine"),
    "Pub/Sub": (["run", "run.yaml", "--set", "input={pubsub: {topic: t}}"], 2, "needs the Beam engine"),
    "no moments": (["moments", "show", "none.aggmc"], 2, "cannot read"),
    "foreign moments": (["moments", "show", "data.csv"], 1, "not an aggmc file"),
    "noise": (["moments", "estimate", "x", "--noise", "binomail:0.5"], 2, "did you mean 'binomial'"),
    "no estimates": (["report", "data.csv"], 1, "not a file of estimates"),
    "no target": (["simulate"], 2, "-o FILE or --config"),
    "bad format": (["simulate", "-o", "x.xls"], 2, "must end in .csv, .jsonl or .parquet"),
}


@pytest.mark.parametrize("case", FAILURES)
def test_errors_are_one_line_and_a_hint_with_an_exit_code_and_no_traceback(case, here, capsys):
    arguments, code, message = FAILURES[case]
    assert main(arguments) == code
    err = capsys.readouterr().err.splitlines()
    assert len(err) == 2
    assert err[0].startswith("aggmc: error: ")
    assert message in err[0]
    assert err[1].startswith("  hint: ")
    assert not Path("out").exists()


def test_debug_shows_where_an_error_arose(here):
    with pytest.raises(am.InputError):
        main(["run", "none.yaml", "--debug"])


def test_an_unforeseen_error_has_no_traceback_either(here, capsys, monkeypatch):
    monkeypatch.setattr("aggmc_beam.commands.run_plan", lambda *_: 1 / 0)
    assert main(["run", "run.yaml"]) == 1
    assert "ZeroDivisionError" in capsys.readouterr().err


def test_help_has_examples_and_the_version_is_told(capsys):
    for arguments in (["--help"], ["run", "--help"], ["moments", "estimate", "--help"]):
        with pytest.raises(SystemExit) as done:
            main(arguments)
        assert done.value.code == 0
        assert "examples:" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["--version"])
    assert capsys.readouterr().out == f"aggmc {am.__version__}\n"
    with pytest.raises(SystemExit) as done:
        main(["runn"])
    assert done.value.code == 2


def test_check_tells_what_a_run_would_do(here, capsys):
    with open(here / "data.csv", "a") as stream:
        stream.write("1,99,x,2,3\n")
    assert main(["check", "run.yaml", "--set", "input.resume=null"]) == 0
    out = capsys.readouterr().out
    assert "is valid" in out
    assert "find 300 records in 301 rows, drop 0 as duplicates, and reject 1" in out
    assert "1 x the count of 'home' is 'x', not a number (data.csv, row 302; see input.decimal" in out
    assert not Path("out").exists()
    (here / "data.csv").write_text("realization,time,home,work,ünterwegs\n1,x,1,1,1\n", encoding="utf-8")
    assert main(["check", "run.yaml"]) == main(["run", "run.yaml"]) == 1
    assert "all 1 rows were rejected; the first: time is 'x'" in capsys.readouterr().err


def test_moments_are_shown_merged_and_estimated_again(here, capsys):
    rows = (here / "data.csv").read_text(encoding="utf-8").splitlines()
    for name, wanted in (("a", range(6)), ("b", range(6, 12))):
        part = [r for r in rows[1:] if int(r.split(",")[1]) in wanted]
        Path("part.csv").write_text("\n".join([rows[0], *part]), encoding="utf-8")
        assert (
            main(["run", "run.yaml", "--set", "input.files=part.csv", "--set", f"output.directory={name}"])
            == 0
        )
    assert main(["moments", "merge", "a", "b/moments.aggmc", "-o", "both.aggmc"]) == 0
    assert "300 records, 275 pairs" in capsys.readouterr().out
    assert main(["moments", "show", "both.aggmc"]) == 0
    assert "pairs:        275" in capsys.readouterr().out
    options = ["--noise", "binomial:0.5", "--population", "200", "--estimator", "mom"]
    assert main(["moments", "estimate", "both.aggmc", *options, "-o", "again.jsonl"]) == 0
    [found] = read("again.jsonl")
    expected = am.estimate(frames.counts(K=25, T=12), noise=am.Binomial(0.5), population=200, estimator="mom")
    np.testing.assert_allclose(found["transition_matrix"], expected.transition_matrix, atol=1e-12)
    assert main(["moments", "merge", "a", "a", "-o", "twice.aggmc"]) == 1
    assert "150 records are in several of these files" in capsys.readouterr().err
    assert not Path("twice.aggmc").exists()
    assert main(["moments", "merge", "a", "a", "-o", "twice.aggmc", "--allow-overlap"]) == 0
    assert main(["moments", "estimate", "twice.aggmc", *options, "-o", "again.jsonl"]) == 0
    assert "150 records were in several of the sums" in read("again.jsonl")[0]["warnings"][0]
    capsys.readouterr()
    assert main(["moments", "estimate", "both.aggmc", "--noise", "{model: binomial, alpha: 0.4}"]) == 0
    assert "Transition matrix by auto" in capsys.readouterr().out


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
def test_simulated_data_can_be_run(suffix, here, capsys):
    arguments = ["--states", "a,b,c", "--steps", "50", "--realizations", "3", "--noise", "binomial:0.5"]
    layout = "long" if suffix == "csv" else "wide"
    assert main(["simulate", *arguments, "--layout", layout, "-o", f"sim.{suffix}"]) == 0
    assert len(json.loads(Path("sim.truth.json").read_text())["transition_matrix"]) == 3
    changes = [f"input={{files: sim.{suffix}, layout: {layout}}}", "states=[a, b, c]", "population=1000"]
    assert main(["run", "run.yaml", *(x for c in changes for x in ("--set", c))]) == 0
    assert "150 records of 3 realizations" in capsys.readouterr().out


BOUNDS = {"quickstart": 0.06, "census_batch": 0.03, "mobility_cycle": 0.12, "windows": 0.12}


@pytest.mark.parametrize("name", BOUNDS)
def test_every_config_runs_and_comes_close_to_its_truth(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    config = str(CONFIGS / f"{name}.yaml")
    assert main(["check", config]) == 0
    assert main(["run", config]) == 0
    out = capsys.readouterr().out
    error = float(out.split("against the known truth: ")[1].split()[0])
    assert error < BOUNDS[name]
    [report] = Path().glob("out/*/report.html")
    assert report.stat().st_size > 10_000
    directory = report.parent
    report.unlink()
    assert main(["report", str(directory)]) == 0
    assert report.exists()
    assert main(["check", config]) == 0


INTERRUPTED = """
import sys, time
import aggmc_beam.local.output as output
from aggmc_beam.cli import main

def wait(*_):
    print("writing", flush=True)
    time.sleep(60)

output.write_report = wait
sys.exit(main(["run", "run.yaml", "--set", "output.report=true"]))
"""


@pytest.mark.parametrize("kind", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_leaves_nothing_half_written(kind, here):
    Path("out").mkdir()
    Path("out/estimates.jsonl").write_text("old\n")
    process = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "writing\n"
    assert len(list(Path("out").iterdir())) == 3  # with the lock
    os.kill(process.pid, kind)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 1
    assert "interrupted; nothing was written" in err
    assert "Traceback" not in err
    assert [p.name for p in Path("out").iterdir()] == ["estimates.jsonl"]
    assert Path("out/estimates.jsonl").read_text() == "old\n"


def test_progress_is_shown_on_a_terminal_only():
    from io import StringIO

    from aggmc_beam.progress import Progress

    class Terminal(StringIO):
        def isatty(self):
            return True

    for stream, shown in ((Terminal(), True), (StringIO(), False)):
        progress = Progress(stream)
        progress("summing", 50, 100)
        progress.clear()
        assert ("50 rows" in stream.getvalue()) is shown
        assert ("50 %" in stream.getvalue()) is shown


def test_progress_is_true_in_every_phase(monkeypatch):
    from aggmc_beam import progress as module

    now = [100.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])

    class Terminal(StringIO):
        def isatty(self):
            return True

    stream = Terminal()
    progress = module.Progress(stream)

    def told(stage, done, total, after=0.2):
        now[0] += after
        stream.truncate(0)
        stream.seek(0)
        progress(stage, done, total)
        return stream.getvalue().strip()

    assert told("reading", 0, None) == "reading ..."
    assert "/s" not in told("reading", 322_273, None, after=0.2), "no speed of a moment"
    assert told("reading", 600_000, None, after=0.8) == "reading: 600,000 rows, 600,000 rows/s"
    assert told("summing", 0, 1000).endswith("summing: 0 rows, 0 %")
    assert told("summing", 500, 1000, after=1.0).endswith("summing: 500 rows, 500 rows/s, 50 %, 0:01 left")
    assert told("estimating", 3, 9).endswith("estimating: 3 of 9, 33 %")
    assert told("writing", 0, None) == "writing ..."


def test_a_run_tells_each_phase(here):
    from aggmc_beam.config import load_config
    from aggmc_beam.local import output
    from aggmc_beam.local.engine import run

    config, given = load_config("run.yaml", ["chain={cycle: 2}"])
    stages = []
    result = run(config, lambda stage, done, total: stages.append((stage, done, total)))
    output.write(result, config, given, lambda stage, done, total: stages.append((stage, done, total)))
    assert stages[0][0] == "reading"
    assert ("reading", 300, None) in stages
    assert ("summing", 300, 300) in stages
    assert [(done, total) for s, done, total in stages if s == "estimating"][-1] == (1, 2)
    assert stages[-1][0] == "writing"


def test_tables_are_written_where_they_are_asked_for(here):
    assert main(["run", "run.yaml", "--quiet", "--set", "output.tables=[csv, parquet]"]) == 0
    import polars as pl

    [estimate] = read("out/estimates.jsonl")
    for frame in (pl.read_csv("out/transitions.csv"), pl.read_parquet("out/transitions.parquet")):
        assert frame.columns == ["from", "to", "probability", "error", "lower", "upper"]
        np.testing.assert_allclose(
            frame["probability"].to_numpy().reshape(3, 3), estimate["transition_matrix"], atol=1e-15
        )
    assert pl.read_csv("out/summary.csv")["pairs"].to_list() == [275]
    files = json.loads(Path("out/run.json").read_text())["files"]
    assert {"transitions.csv", "summary.parquet"} <= set(files)


def test_two_runs_are_compared(here, capsys):
    for name, estimator in (("a", "mom"), ("b", "simplex")):
        changes = [f"output.directory={name}", f"estimator={estimator}"]
        assert main(["run", "run.yaml", "--quiet", *(x for c in changes for x in ("--set", c))]) == 0
    capsys.readouterr()
    assert main(["compare", "a", "b/estimates.jsonl", "-o", "d.csv"]) == 0
    assert "that both have one matrix" in capsys.readouterr().out
    assert Path("d.csv").read_text(encoding="utf-8").startswith("from,to,first,second,difference,error,")
    assert main(["compare", "a", "b", "-o", "d.json"]) == 0
    assert json.loads(Path("d.json").read_text())["entries"][0]["from"] == "home"
    wrong = (
        ["a"],
        ["a", "none"],
        ["a", "--groups", "x", "y"],
        ["a", "--cells", "0", "1"],
        ["a", "b", "-o", "x.y"],
    )
    for arguments in wrong:
        assert main(["compare", *arguments]) == 2


def test_cells_of_a_run_are_compared(here, capsys):
    assert main(["run", "run.yaml", "--quiet", "--set", "chain={window: {size: 6}}"]) == 0
    assert main(["compare", "out", "--cells", "0", "6"]) == 0
    assert "Difference, second minus first" in capsys.readouterr().out
    assert main(["compare", "out", "--cells", "0", "7"]) == 2
    assert "there is no cell 7; there are 0, 6" in capsys.readouterr().err


LOOKS = {
    "wide": ("realization,time,home,work\n", ["states: [home, work]", "noise: {model: exact}"]),
    "renamed": ("day,hour,home,work\n", ["realization: day", "time: hour"]),
}


@pytest.mark.parametrize("look", LOOKS)
def test_init_writes_a_config_that_runs(look, here, capsys):
    header, lines = LOOKS[look]
    rows = [f"{k},{t},{50 + (k * t) % 7},{50 - (k * t) % 7}" for k in range(10) for t in range(20)]
    Path("counts.csv").write_text(header + "\n".join(rows))
    assert main(["init", "counts.csv"]) == 0
    text = Path("counts.yaml").read_text()
    for line in lines:
        assert line in text
    assert text.count("#") >= 4
    assert main(["run", "counts.yaml"]) == 0
    assert Path("out/counts/transitions.csv").exists()
    assert main(["init", "counts.csv"]) == 2
    assert "is there already" in capsys.readouterr().err


def test_init_finds_long_tables_time_stamps_and_noise_below_zero(here):
    rows = [
        f"{k},2026-01-01T{t:02d}:00:00Z,{s},{v}"
        for k in range(5)
        for t in range(20)
        for s, v in (("up", -1 + t % 3), ("down", 9 - t % 3))
    ]
    Path("long.csv").write_text("site,timestamp,status,count\n" + "\n".join(rows))
    assert main(["init", "long.csv", "-o", "x.yaml"]) == 0
    text = Path("x.yaml").read_text()
    for line in ("layout: long", "step: 1h", "states: [up, down]", "model: laplace", "{cycle: 24}"):
        assert line in text
    assert main(["check", "x.yaml"]) == 0
    Path("none.csv").write_text("a,b\nx,y\n")
    assert main(["init", "none.csv", "-o", "y.yaml"]) == 2


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_knows_every_command_and_option(shell, capsys):
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    for word in ("run", "compare", "moments", "merge", "quiet", "log-format"):
        assert word in script


def test_bash_completes(tmp_path, capsys):
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("no bash here")
    main(["completion", "bash"])
    (tmp_path / "c").write_text(capsys.readouterr().out)
    for words, expected in (
        ("aggmc mom", "moments"),
        ("aggmc moments me", "merge"),
        ("aggmc run --q", "--quiet"),
    ):
        line = words.split()
        code = f"source c; COMP_WORDS=({words}); COMP_CWORD={len(line) - 1}; _aggmc; echo ${{COMPREPLY[@]}}"
        found = subprocess.run([bash, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=True)
        assert found.stdout.split() == [expected]


@pytest.mark.parametrize("engine", ["local", "beam"])
@pytest.mark.parametrize("change", ["input.files=gone.csv", "states=[in, nowhere]"])
def test_the_same_mistake_has_the_same_exit_code_on_both_engines(engine, change, here, capsys):
    Path("c.yaml").write_text("states: [in, out]\ninput: {files: data.csv}\npopulation: 10\n")
    Path("data.csv").write_text("realization,time,in,out\n0,0,4,6\n0,1,5,5\n")
    assert main(["run", "c.yaml", "--engine", engine, "--set", change]) == 2
    assert "gone.csv" in capsys.readouterr().err or "nowhere" in change


@pytest.mark.parametrize("command", ["flows", "forecast", "alarms", "change", "report"])
def test_a_result_that_is_not_there_ends_every_command_alike(command, here, capsys):
    assert main([command, "nothere"]) == 2
    assert "cannot read 'nothere'" in capsys.readouterr().err

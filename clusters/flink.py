"""A real Flink cluster on this machine: one JobManager, two TaskManagers, Beam's job server, Python workers.

    python clusters/flink.py up      # fetch what is not in the cache, start everything, wait until ready
    python clusters/flink.py down

Every process has a file NAME.pid and NAME.log in the cluster's folder (out/flink). Jobs go to
`--runner=PortableRunner --job_endpoint=JOB_SERVER`, with `--environment_type=LOOPBACK` (Python workers in the
submitting process) or `EXTERNAL` with `--environment_config=WORKER_POOL` (workers in a process of their own).
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from distribution import Distribution, distribution
from store import Missing, tool

FOLDER = Path(__file__).parent.parent / "out" / "flink"
HOST = "localhost"
RPC, REST, JOB_PORT, POOL_PORT = 6723, 8781, 8799, 8797
JOB_SERVER, WORKER_POOL = f"{HOST}:{JOB_PORT}", f"{HOST}:{POOL_PORT}"
TASK_MANAGERS = ("taskmanager-1", "taskmanager-2")
#: A TaskManager keeps its Python worker for so many milliseconds, and so from one stage of a job to the next.
#: If it ended it after each stage, Beam's LOOPBACK pool, which knows workers by their number alone, would at
#: times end that of the other TaskManager instead: see worker_pool.py.
KEEP_WORKERS = "--environment_cache_millis=60000"
#: One TaskManager alone has slots enough for a job, so that a job survives the other.
SLOTS = 2
PARALLELISM = 2
PATIENCE = 300.0
BEAM_JOB_SERVER = "org.apache.beam.runners.flink.FlinkJobServerDriver"


def up() -> Distribution:
    """Start what does not run yet, and wait until jobs can be submitted."""
    if not Path("/proc/self/stat").exists():
        raise Missing("this script needs Linux")
    tool("java", "to run Flink")
    made = distribution()
    FOLDER.mkdir(parents=True, exist_ok=True)
    _configure(made)
    _start("jobmanager", [made.home / "bin/jobmanager.sh", "start-foreground"])
    for name in TASK_MANAGERS:
        start_taskmanager(made, name)
    _start("jobserver", _job_server(made))
    _start("workers", _worker_pool())
    deadline = time.monotonic() + PATIENCE
    while not ready():
        dead = [name for name in ("jobmanager", *TASK_MANAGERS, "jobserver", "workers") if not running(name)]
        if dead or time.monotonic() > deadline:
            down()
            raise RuntimeError(_last_words(dead[0] if dead else "jobmanager"))
        time.sleep(0.5)
    return made


def down() -> None:
    """End every process that `up` started."""
    for path in sorted(FOLDER.glob("*.pid")):
        _signal(path.stem, signal.SIGTERM)
    deadline = time.monotonic() + 15
    for path in sorted(FOLDER.glob("*.pid")):
        while running(path.stem) and time.monotonic() < deadline:
            time.sleep(0.1)
        _signal(path.stem, signal.SIGKILL)
        path.unlink()


def start_taskmanager(made: Distribution, name: str) -> None:
    _start(name, [made.home / "bin/taskmanager.sh", "start-foreground"])


def kill(name: str) -> int:
    """End a process as a crash of its machine would: it says goodbye to nobody. Returns its number."""
    pid = _pid(name)
    if pid is None:
        raise ValueError(f"{name} does not run")
    _signal(name, signal.SIGKILL)
    while running(name):
        time.sleep(0.05)
    return pid


def running(name: str) -> bool:
    return _pid(name) is not None


def ready() -> bool:
    try:
        managers = rest("taskmanagers")["taskmanagers"]
    except OSError:
        return False
    return len(managers) >= len(TASK_MANAGERS) and all(_listens(p) for p in (JOB_PORT, POOL_PORT))


def rest(path: str, method: str = "GET") -> Any:
    """What the JobManager answers."""
    request = urllib.request.Request(f"http://{HOST}:{REST}/{path}", method=method)
    with urllib.request.urlopen(request, timeout=10) as answer:
        return json.load(answer)


def cancel() -> None:
    """End all jobs. The job server of Beam 2.62 forgets a job that it cancels, but Flink goes on with it, and
    it keeps its slots."""
    while running_jobs():
        for job in running_jobs():
            # It may have ended by itself, or be ending.
            with contextlib.suppress(urllib.error.HTTPError):
                rest(f"jobs/{job}", "PATCH")
        time.sleep(0.5)


def running_jobs() -> list[str]:
    ended = ("FINISHED", "FAILED", "CANCELED")
    return [job["id"] for job in rest("jobs")["jobs"] if job["status"] not in ended]


def _last_words(name: str) -> str:
    log = FOLDER / f"{name}.log"
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    return "\n".join([f"Flink did not start; the end of {log}:", *lines[-20:]])


def _configure(made: Distribution) -> None:
    conf = FOLDER / "conf"
    shutil.copytree(made.home / "conf", conf, dirs_exist_ok=True)
    opens = next(
        line.split("all:", 1)[1].strip()
        for line in (made.home / "conf/config.yaml").read_text(encoding="utf-8").splitlines()
        if line.strip().startswith("all:")
    )
    settings = {
        "env.java.opts.all": opens,
        "jobmanager.rpc.address": HOST,
        "jobmanager.rpc.port": RPC,
        "jobmanager.bind-host": HOST,
        "jobmanager.memory.process.size": "1g",
        "taskmanager.host": HOST,
        "taskmanager.bind-host": HOST,
        "taskmanager.numberOfTaskSlots": SLOTS,
        "taskmanager.memory.process.size": "1400m",
        "taskmanager.memory.managed.size": "128m",
        "taskmanager.memory.network.max": "256m",
        "taskmanager.memory.network.min": "256m",
        # A job over files has many shuffles, each of little data.
        "taskmanager.network.sort-shuffle.min-buffers": 32,
        "taskmanager.load-balance.mode": "SLOTS",
        "classloader.resolve-order": "parent-first",
        "rest.address": HOST,
        "rest.bind-address": HOST,
        "rest.port": REST,
        # A lost TaskManager is noticed, and its job restarted, within seconds.
        "heartbeat.interval": 1000,
        "heartbeat.timeout": 8000,
        "restart-strategy.type": "fixed-delay",
        # One loss may take several: the first new try can still be sent to what is lost.
        "restart-strategy.fixed-delay.attempts": 4,
        "restart-strategy.fixed-delay.delay": "1 s",
        "state.checkpoints.dir": f"file://{FOLDER}/checkpoints",
        "io.tmp.dirs": str(FOLDER / "tmp"),
    }
    (FOLDER / "tmp").mkdir(exist_ok=True)
    text = "".join(f"{key}: {json.dumps(value)}\n" for key, value in settings.items())
    (conf / "config.yaml").write_text(text, encoding="utf-8")


def _job_server(made: Distribution) -> list[str | Path]:
    return [
        "java",
        "-Xmx512m",
        # Its log tells the time, as those of Flink do.
        "-Dorg.slf4j.simpleLogger.showDateTime=true",
        "-Dorg.slf4j.simpleLogger.dateTimeFormat=yyyy-MM-dd HH:mm:ss,SSS",
        "-cp",
        f"{made.job_server}/*",
        # A Java without a compiler takes Beam's own, with which a job takes a quarter of a minute to send.
        Path(__file__).with_name("JobServer.java") if shutil.which("javac") else BEAM_JOB_SERVER,
        f"--flink-master={HOST}:{REST}",
        f"--job-host={HOST}",
        f"--job-port={JOB_PORT}",
        "--artifact-port=0",
        "--expansion-port=0",
        f"--artifacts-dir={FOLDER / 'artifacts'}",
    ]


def _worker_pool() -> list[str | Path]:
    return [sys.executable, Path(__file__).with_name("worker_pool.py"), str(POOL_PORT)]


def _start(name: str, command: list[str | Path]) -> None:
    if running(name):
        return
    environment = {**os.environ, "FLINK_CONF_DIR": str(FOLDER / "conf"), "FLINK_LOG_DIR": str(FOLDER)}
    # The worker pool starts "python", which must be this one.
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
    with open(FOLDER / f"{name}.log", "ab") as log:
        process = subprocess.Popen(
            [str(word) for word in command],
            env=environment,
            cwd=FOLDER,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    (FOLDER / f"{name}.pid").write_text(f"{process.pid} {_birth(process.pid)}", encoding="utf-8")


def _pid(name: str) -> int | None:
    """The number of a process that runs. Numbers are used again, so its time of birth is kept with it."""
    path = FOLDER / f"{name}.pid"
    if not path.exists():
        return None
    pid, birth = path.read_text(encoding="utf-8").split()
    return int(pid) if _birth(int(pid)) == birth else None


def _birth(pid: int) -> str | None:
    """When a process was started, by the system's clock; None if it has ended, be it read or not."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except OSError:
        return None
    state, *rest = text.rpartition(")")[2].split()
    return None if state == "Z" else rest[18]


def _signal(name: str, number: int) -> None:
    pid = _pid(name)
    if pid is not None:
        # The session that `_start` made: a worker pool has children.
        os.killpg(pid, number)


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex((HOST, port)) == 0


def main(arguments: list[str]) -> None:
    if arguments not in (["up"], ["down"]):
        sys.exit(__doc__)
    if arguments == ["down"]:
        return down()
    try:
        made = up()
    except Missing as error:
        sys.exit(f"Flink: {error}")
    print(f"Flink {made.flink}, Beam's job server {made.runner}: --job_endpoint={JOB_SERVER}")


if __name__ == "__main__":
    main(sys.argv[1:])

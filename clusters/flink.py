"""A real Flink cluster on this machine: one JobManager, two TaskManagers, Beam's job server, Python workers.

    python clusters/flink.py up      # fetch what is not in the cache, start everything, wait until ready
    python clusters/flink.py down

Every process has a file NAME.pid and NAME.log in the cluster's folder (out/flink). Jobs go to
`--runner=PortableRunner --job_endpoint=JOB_SERVER`, with `--environment_type=LOOPBACK` (Python workers in the
submitting process) or `EXTERNAL` with `--environment_config=WORKER_POOL` (workers in a process of their own).
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
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
#: One TaskManager alone has slots enough for a job, so that a job survives the other.
SLOTS = 2
PARALLELISM = 2
PATIENCE = 120.0


def up() -> Distribution:
    """Start what does not run yet, and wait until jobs can be submitted."""
    tool("java", "to run Flink")
    made = distribution()
    FOLDER.mkdir(parents=True, exist_ok=True)
    _configure(made)
    started = [_start("jobmanager", [made.home / "bin/jobmanager.sh", "start-foreground"])]
    started += [start_taskmanager(made, name) for name in TASK_MANAGERS]
    started += [_start("jobserver", _job_server(made)), _start("workers", _worker_pool())]
    deadline = time.monotonic() + PATIENCE
    while not ready():
        dead = [name for name in ("jobmanager", *TASK_MANAGERS, "jobserver", "workers") if not running(name)]
        if dead or time.monotonic() > deadline:
            down()
            raise Missing(f"Flink did not start: see {FOLDER}/{dead[0] if dead else 'jobmanager'}.log")
        time.sleep(0.5)
    return made


def down() -> None:
    """End every process that `up` started."""
    for path in sorted(FOLDER.glob("*.pid")):
        if running(path.stem):
            _signal(path.stem, signal.SIGTERM)
    deadline = time.monotonic() + 15
    for path in sorted(FOLDER.glob("*.pid")):
        while running(path.stem) and time.monotonic() < deadline:
            time.sleep(0.1)
        if running(path.stem):
            _signal(path.stem, signal.SIGKILL)
        path.unlink()


def start_taskmanager(made: Distribution, name: str) -> int:
    return _start(name, [made.home / "bin/taskmanager.sh", "start-foreground"])


def kill(name: str) -> int:
    """End a process as a crash of its machine would: it says goodbye to nobody. Returns its number."""
    pid = _pid(name)
    if pid is None or not running(name):
        raise ValueError(f"{name} does not run")
    _signal(name, signal.SIGKILL)
    while running(name):
        time.sleep(0.05)
    return pid


def running(name: str) -> bool:
    pid = _pid(name)
    if pid is None:
        return False
    try:
        # A child of this process that has ended waits to be read, and would look alive.
        os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        pass
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def ready() -> bool:
    try:
        managers = rest("taskmanagers")["taskmanagers"]
    except OSError:
        return False
    return len(managers) >= len(TASK_MANAGERS) and all(_listens(p) for p in (JOB_PORT, POOL_PORT))


def rest(path: str) -> Any:
    """What the JobManager answers."""
    with urllib.request.urlopen(f"http://{HOST}:{REST}/{path}", timeout=10) as answer:
        return json.load(answer)


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
        "taskmanager.memory.process.size": "1200m",
        "taskmanager.memory.managed.size": "128m",
        "taskmanager.memory.network.max": "128m",
        "taskmanager.memory.network.min": "128m",
        "taskmanager.load-balance.mode": "SLOTS",
        "classloader.resolve-order": "parent-first",
        "rest.address": HOST,
        "rest.bind-address": HOST,
        "rest.port": REST,
        # A lost TaskManager is noticed, and its job restarted, within seconds.
        "heartbeat.interval": 1000,
        "heartbeat.timeout": 8000,
        "restart-strategy.type": "fixed-delay",
        "restart-strategy.fixed-delay.attempts": 20,
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
        "-cp",
        f"{made.job_server}/*",
        "org.apache.beam.runners.flink.FlinkJobServerDriver",
        f"--flink-master={HOST}:{REST}",
        f"--job-host={HOST}",
        f"--job-port={JOB_PORT}",
        "--artifact-port=0",
        "--expansion-port=0",
        f"--artifacts-dir={FOLDER / 'artifacts'}",
    ]


def _worker_pool() -> list[str | Path]:
    pool = "apache_beam.runners.worker.worker_pool_main"
    return [sys.executable, "-m", pool, f"--service_port={POOL_PORT}"]


def _start(name: str, command: list[str | Path]) -> int:
    if running(name):
        return _pid(name) or 0
    environment = {**os.environ, "FLINK_CONF_DIR": str(FOLDER / "conf"), "FLINK_LOG_DIR": str(FOLDER)}
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
    (FOLDER / f"{name}.pid").write_text(str(process.pid), encoding="utf-8")
    return process.pid


def _pid(name: str) -> int | None:
    path = FOLDER / f"{name}.pid"
    return int(path.read_text(encoding="utf-8")) if path.exists() else None


def _signal(name: str, number: int) -> None:
    pid = _pid(name)
    if pid is not None and running(name):
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

"""Beam's pool of Python workers, made fit for several TaskManagers that share it.

    python clusters/worker_pool.py PORT

TaskManagers number their workers each for itself, from 1. Beam's pool knows a worker by that number alone, so
that a TaskManager which is done with its worker ends the one of another. Here a worker belongs to the
connection that asked for it: Flink opens one for each, and ends the worker over the same.
"""

from __future__ import annotations

import sys
from typing import Any

from apache_beam.runners.worker.worker_pool_main import BeamFnExternalWorkerPoolServicer as Pool


class SharedPool(Pool):
    """A pool of Beam for each connection."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self._settings = settings
        self._pools: dict[str, Pool] = {}

    def StartWorker(self, start_worker_request: Any, context: Any) -> Any:
        pool = self._pools[context.peer()] = Pool(**self._settings)
        return pool.StartWorker(start_worker_request, context)

    def StopWorker(self, stop_worker_request: Any, context: Any) -> Any:
        # One whose connection was lost is not known any more; it ends by itself when it has no TaskManager.
        pool = self._pools.pop(context.peer(), None) or super()
        return pool.StopWorker(stop_worker_request, context)


def main(port: str) -> None:
    _, server = SharedPool.start(use_process=True, port=int(port))
    server.wait_for_termination()


if __name__ == "__main__":
    main(*sys.argv[1:])

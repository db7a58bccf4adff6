"""Jobs of one queue on one server, by one client without Spark: lives.py URL JOBS PAYLOAD

Prints "ready", starts when it reads a line, and prints "done" when all jobs were dispatched, processed, collected and
removed. Several of them at the same time, one for each server, are the parts of a larger queue.
"""

from __future__ import annotations

import sys

from benchmarks.calls import clean_completed, collect, dispatch
from benchmarks.filling import queue_at
from benchmarks.trials import work_off
from spark_bull.core.queue.handle.handle import QueueHandle

#: Jobs per claim, the default of the loop engine.
CLAIM = 100


def live(handle: QueueHandle, jobs: int, payload: int) -> None:
    dispatch(handle, jobs, payload)
    work_off(handle, CLAIM)
    collect(handle, jobs)
    clean_completed(handle, jobs)


def main() -> None:
    url, jobs, payload = sys.argv[1], *map(int, sys.argv[2:])
    with queue_at(url) as queue:
        print("ready", flush=True)
        for _ in sys.stdin:
            live(queue.handle, jobs, payload)
            print("done", flush=True)


if __name__ == "__main__":
    main()

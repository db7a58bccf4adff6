"""Functions of jobs that the processes of a LocalWorker import."""

from __future__ import annotations

import os
import time

from spark_bull.worker.job.running_job import RunningJob


def hold(job: RunningJob) -> int:
    """Reports its process as progress, and waits until the key `go` exists; an attempt after a stall does not wait."""
    job.update_progress(os.getpid())
    connection, keys = job.handle.connection, job.handle.keys
    while not job.claimed.stalled_counter and not connection.call("EXISTS", f"{keys.base}go"):
        time.sleep(0.02)
    return os.getpid()


def fail_to_set_up() -> None:
    raise RuntimeError("no model")

"""A process that is a slot of a worker, whose jobs report progress 1 when they start, and do not end by themselves.

python -m tests.support.terminated_slot <url> <prefix> <dialect> <concurrency>
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from spark_bull import BullQueue
from spark_bull.queue.claim_settings import ClaimSettings
from spark_bull.worker.job_runner import FunctionRunner
from spark_bull.worker.running_job import RunningJob
from spark_bull.worker.slot import loop_of
from spark_bull.worker.slot_plan import QueuePlan, SlotPlan

ROOT = Path(__file__).parents[2]


def start(url: str, prefix: str, dialect: str, concurrency: int) -> subprocess.Popen[bytes]:
    """Starts the process for the queue `q`."""
    command = [sys.executable, "-m", "tests.support.terminated_slot", url, prefix, dialect, str(concurrency)]
    return subprocess.Popen(command, cwd=ROOT)


def main(url: str, prefix: str, dialect: str, concurrency: str) -> None:
    handle = BullQueue("q", url=url, prefix=prefix, protocol=dialect).handle
    settings = ClaimSettings("slot", lock_ms=3_600_000, control=handle.keys.control("slot"))

    def processor(job: RunningJob) -> None:
        job.update_progress(1)
        time.sleep(3_600)

    runner = FunctionRunner(processor)
    loop_of(SlotPlan((QueuePlan(handle, settings),), "slot", runner, concurrency=int(concurrency)), 0).run()


if __name__ == "__main__":
    main(*sys.argv[1:])

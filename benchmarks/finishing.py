"""Fills a queue with finished jobs, or adds and completes jobs at a constant rate.

    python -m benchmarks.finishing URL JOBS_PER_S SECONDS

Prints "ready", starts when it reads a line, and prints "done" when the last job has completed.
"""

from __future__ import annotations

import sys
import time

from benchmarks.filling import plain, queue_at
from spark_bull import BullQueue
from spark_bull.core.model.outcomes import Claim, Outcomes
from spark_bull.core.queue.handle.claim_settings import ClaimSettings
from spark_bull.core.queue.work.claim import work

CLAIM_SETTINGS = ClaimSettings("finisher")
RETURNVALUE = '{"ok":true,"bytes":1234}'
#: Jobs completed per call when filling a queue, and at a constant rate.
CHUNK, PACED_CHUNK = 500, 100


def fill_finished(queue: BullQueue, jobs: int) -> None:
    """Adds jobs and completes all waiting jobs."""
    queue.add_many(plain(jobs))
    done = _completed(work(queue.handle, CLAIM_SETTINGS, None, CHUNK))
    while len(done):
        done = _completed(work(queue.handle, CLAIM_SETTINGS, done, CHUNK))


def finish_steadily(queue: BullQueue, per_second: int, seconds: int) -> None:
    """Adds a chunk of jobs and completes the previous one, alternately; catches up after delays."""
    done: Outcomes | None = None
    started = time.monotonic()
    for turn in range(per_second * seconds // PACED_CHUNK):
        time.sleep(max(0.0, started + turn * PACED_CHUNK / per_second - time.monotonic()))
        queue.add_many(plain(PACED_CHUNK))
        done = _completed(work(queue.handle, CLAIM_SETTINGS, done, PACED_CHUNK))
    work(queue.handle, CLAIM_SETTINGS, done, 0)


def _completed(claim: Claim) -> Outcomes:
    outcomes = Outcomes(claim.token)
    for job in claim.jobs:
        outcomes.complete(job.id, RETURNVALUE)
    return outcomes


def main() -> None:
    url, per_second, seconds = sys.argv[1:]
    with queue_at(url) as queue:
        print("ready", flush=True)
        sys.stdin.readline()
        finish_steadily(queue, int(per_second), int(seconds))
        print("done", flush=True)


if __name__ == "__main__":
    main()

"""A process that is a slot of a worker, and kills itself before or after one of its calls of scripts."""

from __future__ import annotations

from spark_bull import BullQueue
from tests.support.dying_write import die_at
from tests.support.forked_process import exit_code
from tests.support.worker import OurWorker

#: Its jobs are stalled soon after it has died.
LOCK_MS = 1_000


def run(url: str, prefix: str, dialect: str, call: int, when: str) -> int:
    """Works on the queue `q` in a separate process; returns its exit code."""
    return exit_code(_run, url, prefix, dialect, call, when)


def _run(url: str, prefix: str, dialect: str, call: int, when: str) -> None:
    worker = OurWorker(BullQueue("q", url=url, prefix=prefix, protocol=dialect).handle, chunk_size=7, lock_ms=LOCK_MS)
    die_at(call, when)
    worker.loop.run()

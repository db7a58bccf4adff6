"""A process that is a slot of a worker, and kills itself before or after one of its calls of scripts.

python -m tests.support.dying_worker <url> <prefix> <dialect> <number of the call> <before | after>
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from spark_bull import BullQueue
from tests.support.dying_write import die_at
from tests.support.worker import OurWorker

ROOT = Path(__file__).parents[2]
#: Its jobs are stalled soon after it has died.
LOCK_MS = 1_000


def run(url: str, prefix: str, dialect: str, call: int, when: str) -> int:
    """Runs this module in a separate process, for the queue `q`, and returns its exit code."""
    command = [sys.executable, "-m", "tests.support.dying_worker", url, prefix, dialect, str(call), when]
    return subprocess.run(command, cwd=ROOT, check=False).returncode


def main(url: str, prefix: str, dialect: str, call: str, when: str) -> None:
    worker = OurWorker(BullQueue("q", url=url, prefix=prefix, protocol=dialect).handle, chunk_size=7, lock_ms=LOCK_MS)
    die_at(int(call), when)
    worker.loop.run()


if __name__ == "__main__":
    main(*sys.argv[1:])

"""A process that writes jobs to a queue with a maximum length.

python -m tests.support.room_writer <options of BullQueue as JSON> <queue> <writer> <jobs> <staged | direct>

It prints how many jobs it has added. Ids of the jobs: `<writer>-<number>`.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from spark_bull.errors import QueueFull
from spark_bull.model import NewJob
from spark_bull.queue.bull_queue import BullQueue
from spark_bull.queue.room import LengthLimit
from spark_bull.queue.writes import register, roll_forward
from tests.support.writes import stage_all

ROOT = Path(__file__).parents[2]
CHUNK = 50


def add(queue: BullQueue, jobs: list[NewJob]) -> int:
    """Adds chunk after chunk; returns the number of added jobs."""
    added = 0
    for first in range(0, len(jobs), CHUNK):
        try:
            added += queue.add_many(jobs[first : first + CHUNK]).added
        except QueueFull:
            break
    return added


def write(queue: BullQueue, writer: str, jobs: list[NewJob], limit: LengthLimit) -> int:
    """Adds the jobs as the sink does, exactly once."""
    write_id = f"write-{writer}"
    try:
        register(write_id, [stage_all(queue.handle, write_id, [jobs], CHUNK, **limit.fields)], None)
    except QueueFull:
        return 0
    return roll_forward(queue.handle, write_id).added


def start(options: dict[str, Any], queue: str, writer: str, jobs: int, how: str) -> subprocess.Popen[str]:
    """Starts this module in a separate process."""
    command = [sys.executable, "-m", "tests.support.room_writer", json.dumps(options), queue, writer, str(jobs), how]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)


if __name__ == "__main__":
    given, name, who, count, manner = sys.argv[1:]
    arguments = json.loads(given)
    with BullQueue(name, **arguments) as opened:
        made = [NewJob({"n": n}, job_id=f"{who}-{n}") for n in range(int(count))]
        length_limit = LengthLimit(arguments["max_length"], arguments["when_full"])
        print(add(opened, made) if manner == "direct" else write(opened, who, made, length_limit))

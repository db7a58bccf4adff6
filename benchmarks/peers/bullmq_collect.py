"""Reads finished jobs page by page with the Python package bullmq: bullmq_collect.py URL QUEUE JOBS FILE

Writes each as a line of JSON. Prints "ready" when it has read and serialized the first pages, starts when it reads a
line, prints "done" when the file is complete.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import TextIO

from bullmq import Queue

PAGE = 1_000
WARM_UP_PAGES = 10
FIELDS = (
    "id",
    "name",
    "data",
    "opts",
    "progress",
    "returnvalue",
    "failedReason",
    "stacktrace",
    "attemptsMade",
    "timestamp",
    "processedOn",
    "finishedOn",
)


async def collect(queue: Queue, jobs: int, file: TextIO) -> None:
    for first in range(0, jobs, PAGE):
        page = await queue.getCompleted(first, min(first + PAGE, jobs) - 1)
        file.writelines(json.dumps({name: getattr(job, name) for name in FIELDS}) + "\n" for job in page)


async def main() -> None:
    url, name, jobs, path = sys.argv[1:]
    queue = Queue(name, {"connection": url})
    with open(os.devnull, "w", encoding="utf-8") as nowhere:
        await collect(queue, min(int(jobs), WARM_UP_PAGES * PAGE), nowhere)
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    with open(path, "w", encoding="utf-8") as file:
        await collect(queue, int(jobs), file)
    print("done", flush=True)
    await queue.close()


if __name__ == "__main__":
    asyncio.run(main())

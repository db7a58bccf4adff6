"""A worker of the Python package bullmq for jobs without work: bullmq_process.py URL QUEUE CONCURRENCY noop|clock

A job returns None, or its start time: ms of the monotonic clock, which all processes of the machine share. Prints
"ready" when connected, and exits when standard input is closed.
"""

from __future__ import annotations

import asyncio
import sys
import time
from typing import Any

from bullmq import Worker


async def noop(_job: Any, _token: str) -> None:
    return None


async def clock(_job: Any, _token: str) -> float:
    return time.monotonic_ns() / 1e6


async def main() -> None:
    url, name, concurrency, kind = sys.argv[1:]
    processor = {"noop": noop, "clock": clock}[kind]
    worker = Worker(name, processor, {"connection": url, "concurrency": int(concurrency)})
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.read)
    await worker.close(force=True)


if __name__ == "__main__":
    asyncio.run(main())

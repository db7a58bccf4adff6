"""Prints how many files of the package one row, one job and one result pass: fewer are easier to follow.

python -m tools.walks [-v]

Counted are the files whose functions are called: for a row by the plan, the task and the commit of its write; for a job
by the thread of its slot, with a function that runs alone, and by one that runs beside others; for a result by the
stream that reads it.
"""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, Final, cast

import pyarrow as pa
from pyspark.sql.types import StringType, StructType

import spark_bull
from spark_bull import BullQueue, EmbeddedRedis, LocalWorker

PACKAGE: Final = str(Path(spark_bull.__file__).parent)
QUEUE: Final = "walks"
#: Names of threads: a slot has the id of its worker.
MAIN: Final = re.compile("MainThread")
SLOT: Final = re.compile("spark-bull-[0-9a-f]{8,}")


@contextmanager
def walked(thread: re.Pattern[str]) -> Iterator[set[str]]:
    """Collects the files of the package whose functions are called in threads with such a name."""
    files: set[str] = set()

    def note(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        is_ours = event == "call" and code.co_filename.startswith(PACKAGE) and code.co_name != "<module>"
        if is_ours and thread.fullmatch(threading.current_thread().name):
            files.add(code.co_filename)

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        yield files
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def row(url: str) -> None:
    schema = StructType().add("data", StringType())
    writer = spark_bull.BullDataSource({"url": url, "queue": QUEUE}).writer(schema, False)
    rows = pa.RecordBatch.from_pydict({"data": ['{"n":1}']})
    writer.commit([writer.write(iter([rows]))])


def job(url: str, concurrency: int) -> None:
    queue = BullQueue(QUEUE, url=url)
    with LocalWorker(queue=QUEUE, processor=lambda job: job.id, url=url, concurrency=concurrency, promoter=False):
        queue.wait(queue.add({"n": 1}))


def result(url: str) -> None:
    source = spark_bull.BullDataSource({"url": url, "queue": QUEUE, "startingOffsets": "earliest"})
    reader = source.streamReader(cast(StructType, source.schema()))
    start = reader.initialOffset()
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    for partition in reader.partitions(start, end):
        assert list(reader.read(partition)), "expected results, got none"
    reader.commit(end)


def main() -> None:
    with EmbeddedRedis() as server:
        counts: dict[str, set[str]] = {}
        url = server.url
        for name, thread, walk in WALKS:
            # The first time, modules and scripts are loaded.
            walk(url)
            with walked(thread) as files:
                walk(url)
            counts.setdefault(name, set()).update(files)
    for name, files in counts.items():
        print(f"one {name}: {len(files)} files")
        if "-v" in sys.argv:
            print(*(f"  {Path(file).relative_to(PACKAGE)}" for file in sorted(files)), sep="\n")


#: What is counted, in which thread, and what is done; a job has two ways to run.
WALKS: Final[tuple[tuple[str, re.Pattern[str], Callable[[str], None]], ...]] = (
    ("row", MAIN, row),
    ("job", SLOT, partial(job, concurrency=1)),
    ("job", SLOT, partial(job, concurrency=2)),
    ("result", MAIN, result),
)

if __name__ == "__main__":
    main()

"""The rows of the views that don't show jobs, as mappings by column name; times in ms."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from spark_bull.options import Options
from spark_bull.queue.find import describe, workers
from spark_bull.queue.handle import QueueHandle
from spark_bull.queue.read import Slice, counts, read_ids, read_jobs
from spark_bull.queue.writes import records

Row = Mapping[str, Any]

#: Log lines that one call reads of one job.
LINES: Final = 1_000


@dataclass(frozen=True)
class Share:
    """What one task reads of one queue."""

    handle: QueueHandle
    options: Options
    part: Slice


def count_rows(share: Share) -> Iterator[Row]:
    wanted = share.options["states"]
    for state, jobs in counts(share.handle).items():
        if not wanted or state in wanted:
            yield {"queue": share.handle.keys.queue, "state": state, "jobs": jobs}


def queue_rows(share: Share) -> Iterator[Row]:
    found = describe(share.handle)
    yield {
        "queue": share.handle.keys.queue,
        "protocol": share.handle.dialect.name,
        "version": found.version,
        "paused": found.paused,
        "concurrency": found.concurrency,
        "jobs": sum(counts(share.handle).values()),
    }


def write_rows(share: Share) -> Iterator[Row]:
    for record in records(share.handle):
        yield {
            "queue": record.queue,
            "id": record.id,
            "state": record.state,
            "delivery": record.delivery,
            "jobs": record.jobs,
            "added": record.added,
            "duplicates": record.duplicates,
            "startedOn": record.started_on,
            "finishedOn": record.finished_on,
            "durationMs": record.duration_ms,
            "appId": record.app_id,
            "version": record.version,
        }


def log_rows(share: Share) -> Iterator[Row]:
    options, handle = share.options, share.handle
    if options["jobIds"]:
        ids = options["jobIds"][share.part.number :: share.part.of]
        chunks = read_ids(handle, ids, options["states"], (), options["chunkSize"])
    else:
        chunks = read_jobs(handle, options["states"], (), share.part, options["chunkSize"])
    for chunk in chunks:
        yield from _lines(handle, [job_id.decode("utf-8", "replace") for job_id in chunk.ids])


def _lines(handle: QueueHandle, ids: list[str]) -> Iterator[Row]:
    first = 0
    while ids:
        replies = handle.connection.pipeline(
            [("LRANGE", handle.keys.logs(job_id), first, first + LINES - 1) for job_id in ids]
        )
        for job_id, lines in zip(ids, replies, strict=True):
            for number, line in enumerate(lines, start=first):
                text = line.decode("utf-8", "replace")
                yield {"queue": handle.keys.queue, "id": job_id, "line": number, "log": text}
        ids = [job_id for job_id, lines in zip(ids, replies, strict=True) if len(lines) == LINES]
        first += LINES


def worker_rows(share: Share) -> Iterator[Row]:
    for worker in workers(share.handle.connection, share.handle.keys):
        yield {
            "queue": share.handle.keys.queue,
            "name": worker.name,
            "address": worker.address,
            "age": worker.age,
            "idle": worker.idle,
        }


ROWS: Final[dict[str, Callable[[Share], Iterator[Row]]]] = {
    "counts": count_rows,
    "queues": queue_rows,
    "writes": write_rows,
    "logs": log_rows,
    "workers": worker_rows,
}

"""The rows of all views except `jobs`, as mappings by column name. Times are ms since 1970."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from spark_bull.core.model.job_json import in_camel_case
from spark_bull.core.model.queues import Percentiles
from spark_bull.core.model.read_jobs import FlowNode
from spark_bull.core.options.table import ReadOptions
from spark_bull.core.queue.dispatch.write_records import records
from spark_bull.core.queue.handle.handle import QueueHandle
from spark_bull.core.queue.handle.walk import Slice
from spark_bull.core.queue.jobs.children import dependencies_of, read_flow, roots_among
from spark_bull.core.queue.jobs.read import counts, read_ids, read_jobs
from spark_bull.core.queue.manage.limits import read_groups
from spark_bull.core.queue.monitor.activity import COUNTED_STATES, activity, read_metrics
from spark_bull.core.queue.monitor.find import describe, workers
from spark_bull.core.queue.monitor.stats import stats
from spark_bull.core.queue.schedule.schedulers import schedulers
from spark_bull.core.well_formed import well_formed_json
from spark_bull.spark.schemas import SCHEMAS

Row = Mapping[str, Any]

#: Log lines read per job and call.
LINES: Final = 1_000


@dataclass(frozen=True)
class QueueSlice:
    """The slice of a queue that a task reads."""

    handle: QueueHandle
    options: ReadOptions
    part: Slice


def count_rows(queue_slice: QueueSlice) -> Iterator[Row]:
    handle, states = queue_slice.handle, queue_slice.options.states
    for state, jobs in counts(handle).items():
        if not states or state in states:
            yield {"queue": handle.keys.queue, "state": state, "jobs": jobs}


def queue_rows(queue_slice: QueueSlice) -> Iterator[Row]:
    handle = queue_slice.handle
    yield {
        "queue": handle.keys.queue,
        "protocol": handle.dialect.name,
        "jobs": sum(counts(handle).values()),
        **in_camel_case(describe(handle)),
        **in_camel_case(activity(handle)),
    }


def write_rows(queue_slice: QueueSlice) -> Iterator[Row]:
    for record in records(queue_slice.handle):
        yield {**in_camel_case(record), "durationMs": record.duration_ms}


def log_rows(queue_slice: QueueSlice) -> Iterator[Row]:
    for ids in _ids(queue_slice):
        yield from _lines(queue_slice.handle, ids)


def dependency_rows(queue_slice: QueueSlice) -> Iterator[Row]:
    for ids in _ids(queue_slice):
        for found in dependencies_of(queue_slice.handle, ids):
            value = found.value and well_formed_json(found.value) if found.state == "processed" else found.value
            yield {**in_camel_case(found), "value": value}


def flow_rows(queue_slice: QueueSlice) -> Iterator[Row]:
    handle, options = queue_slice.handle, queue_slice.options
    for ids in _ids(queue_slice):
        for root in ids if options.job_ids else roots_among(handle, ids):
            found = read_flow(handle, root, options.max_depth, options.max_jobs)
            for node in found.walk() if found else ():
                of_job = in_camel_case(node.job) if node.job else dict.fromkeys(SCHEMAS["flows"].names)
                yield of_job | _flow_columns(node) | {"queue": handle.keys.queue, "id": root}


def _flow_columns(node: FlowNode) -> dict[str, Any]:
    return {
        "depth": node.depth,
        "jobQueue": node.queue,
        "jobId": node.id,
        "parentQueue": node.parent_queue,
        "parentId": node.parent_id,
        "dependency": node.dependency,
        "children": node.child_count,
    }


def _ids(queue_slice: QueueSlice) -> Iterator[list[str]]:
    """The ids of the jobs that the options choose, chunk by chunk."""
    options, handle = queue_slice.options, queue_slice.handle
    if options.job_ids:
        ids = options.job_ids[queue_slice.part.number :: queue_slice.part.of]
        chunks = read_ids(handle, ids, options.states, (), options.chunk_size)
    else:
        chunks = read_jobs(handle, options.states, (), queue_slice.part, options.chunk_size)
    for chunk in chunks:
        yield [job_id.decode("utf-8", "replace") for job_id in chunk.ids]


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


def scheduler_rows(queue_slice: QueueSlice) -> Iterator[Row]:
    yield from map(in_camel_case, schedulers(queue_slice.handle))


def group_rows(queue_slice: QueueSlice) -> Iterator[Row]:
    for found in read_groups(queue_slice.handle):
        yield {**in_camel_case(found), "duration": found.duration_ms, "paused": found.is_paused}


def worker_rows(queue_slice: QueueSlice) -> Iterator[Row]:
    handle = queue_slice.handle
    for worker in workers(handle.connection, handle.keys):
        yield {"queue": handle.keys.queue, **in_camel_case(worker)}


def metrics_rows(queue_slice: QueueSlice) -> Iterator[Row]:
    handle, states = queue_slice.handle, queue_slice.options.states
    for state in COUNTED_STATES:
        if not states or state in states:
            found = read_metrics(handle, state)
            for minute, jobs in found.minutes.items():
                yield {"queue": found.queue, "state": state, "minute": minute, "jobs": jobs, "total": found.count}


def stats_rows(queue_slice: QueueSlice) -> Iterator[Row]:
    for found in stats(queue_slice.handle, queue_slice.options.window_ms):
        yield {
            **in_camel_case(found),
            **_percentile_columns("wait", found.wait),
            **_percentile_columns("run", found.run),
            "addedPerSecond": found.added_per_s,
            "finishedPerSecond": found.finished_per_s,
        }


def _percentile_columns(time: str, found: Percentiles | None) -> Row:
    return {f"{time}P{percent}": found and getattr(found, f"p{percent}") for percent in (50, 95, 99)}


ROWS: Final[dict[str, Callable[[QueueSlice], Iterator[Row]]]] = {
    "counts": count_rows,
    "queues": queue_rows,
    "writes": write_rows,
    "logs": log_rows,
    "dependencies": dependency_rows,
    "flows": flow_rows,
    "schedulers": scheduler_rows,
    "groups": group_rows,
    "workers": worker_rows,
    "metrics": metrics_rows,
    "stats": stats_rows,
}

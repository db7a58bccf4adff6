"""Measures the calls of one client on a queue with many jobs: Redis' CPU per job, and its longest call.

    calls.py JOBS [SERVER]

SERVER: another redis-server than the embedded one. Prints a table, and finally the figures as JSON.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Final

from benchmarks.clocked import Calls, clocked
from benchmarks.filling import overdue, payload, queue_at
from benchmarks.stock import stock_redis
from spark_bull.dialects.encode.chunks import ChunkBuilder, PackedChunk
from spark_bull.dialects.encode.codec import encode
from spark_bull.dialects.fields import FIELDS
from spark_bull.options.table import ALL_EVENTS
from spark_bull.queue.collect.result_ledger import ResultLedger
from spark_bull.queue.core.handle import QueueHandle
from spark_bull.queue.dispatch.registration import register
from spark_bull.queue.dispatch.writes import QueuePlan, StagedChunk, StagedPart, roll_forward, stage_chunks
from spark_bull.queue.jobs.counts_by import counts_by
from spark_bull.queue.jobs.portions import Place, read_portion
from spark_bull.queue.jobs.read import counts
from spark_bull.queue.manage.manage import clean, drain
from spark_bull.queue.process.service_verbs import promote_due
from spark_bull.spark.collect.batch import fields_of

CHUNK, CHUNKS_PER_PART = 250, 100
#: Bytes of a payload.
PAYLOAD: Final = 200
CHUNK_BYTES: Final = 1 << 20
HOUR_MS: Final = 3_600_000
WRITE_ID, READER = "growth", "bench"
#: Portions that are read from each end of a queue, and jobs of a portion.
PORTIONS, PORTION = 20, 100
#: The longest time for which a call may keep Redis busy.
MAX_MS: Final = 10.0
#: Moves waiting jobs to the completed ones, with the fields that a worker writes.
FINISH: Final = """
local ids = redis.call('RPOP', KEYS[1], 1000) or {}
for _, id in ipairs(ids) do
  redis.call('HSET', ARGV[1] .. id, 'processedOn', ARGV[2], 'finishedOn', ARGV[2], 'attemptsMade', 1, 'ats', 1,
    'returnvalue', '{"ok":true,"bytes":1234}')
  redis.call('ZADD', KEYS[2], ARGV[2], id)
end
return #ids
"""


@dataclass(frozen=True)
class Called:
    """Redis' CPU time for a step: per job in µs, of the median and the longest call in ms; and the number of calls,
    and of those over MAX_MS.
    """

    us_per_job: float
    median_ms: float
    longest_ms: float
    calls: int
    over: int


def dispatch(handle: QueueHandle, jobs: int, size: int = PAYLOAD) -> None:
    """An exactly-once write without Spark. size: bytes of a payload."""
    stage(handle, jobs, size)
    add_staged(handle, jobs)


def stage(handle: QueueHandle, jobs: int, size: int = PAYLOAD, events: str = ALL_EVENTS) -> None:
    """Stages and registers a write. events: those that it causes."""
    parts: list[StagedPart] = []
    for number, chunk in enumerate(chunks_of(handle, jobs, size)):
        if number % CHUNKS_PER_PART == 0:
            parts.append(StagedPart(handle.keys.stage(f"{WRITE_ID}.{len(parts)}"), 0, 0))
        stage_chunks(handle.connection, [StagedChunk(parts[-1].stage, parts[-1].chunks, chunk.packed)], HOUR_MS)
        parts[-1].chunks += 1
        parts[-1].rows += chunk.rows
    register(WRITE_ID, [QueuePlan(handle, parts, {"events": events})], None)


def add_staged(handle: QueueHandle, jobs: int) -> None:
    """Adds the staged jobs, as the driver does."""
    added = roll_forward(handle, WRITE_ID).added
    assert added == jobs, f"expected {jobs} jobs to be added, got {added}"


def chunks_of(handle: QueueHandle, jobs: int, size: int) -> Iterator[PackedChunk]:
    builder = ChunkBuilder(CHUNK, CHUNK_BYTES)
    for first in range(0, jobs, CHUNK):
        numbers = range(first, min(jobs, first + CHUNK))
        rows = {"data": [payload(number, size).text for number in numbers], "name": ["flight"] * len(numbers)}
        yield from builder.add(encode(handle.dialect, rows, {}, numbers))
    yield from builder.flush()


def look(handle: QueueHandle, jobs: int) -> None:
    """Counts, and pages from both ends."""
    found = counts(handle)
    assert found["wait"] == jobs, f"expected {jobs} waiting jobs, got {found}"
    assert counts_by(handle, "priority")["wait"] == {0: jobs}
    for descending in (False, True):
        place: Place | None = None
        for _ in range(PORTIONS):
            place = read_portion(handle, ["wait"], place, PORTION, descending=descending).next


def finish(handle: QueueHandle, jobs: int) -> None:
    connection, keys = handle.connection, handle.keys
    for _ in range(0, jobs, 1_000):
        now = time.time_ns() // 1_000_000
        connection.call("EVAL", FINISH, 2, keys["wait"], keys["completed"], keys.base, now)


def collect(handle: QueueHandle, jobs: int) -> None:
    """Finds all finished jobs, and reads all of their fields."""
    ledger = ResultLedger(handle, READER, owner="bench")
    assert ledger.open("earliest", create=True).state == "ok"
    found = ledger.discover()
    while found.more:
        found = ledger.discover()
    assert found.end == jobs, f"expected {jobs} jobs to be found, got {found.end}"
    rows, position = ledger.rows(fields_of(list(FIELDS))), 0
    while position < jobs:
        position, _ = rows.read(position, jobs)
    ledger.cut(jobs)


def clean_completed(handle: QueueHandle, jobs: int) -> None:
    removed = len(clean(handle))
    assert removed == jobs, f"expected {jobs} jobs to be removed, got {removed}"


def promote(handle: QueueHandle, jobs: int) -> None:
    while promote_due(handle).more:
        pass
    assert counts(handle)["wait"] == jobs


def drain_all(handle: QueueHandle, jobs: int) -> None:
    removed = drain(handle)
    assert removed == jobs, f"expected {jobs} jobs to be removed, got {removed}"


def measured(jobs: int, executable: str | None = None) -> dict[str, Called]:
    """Measures all steps with so many jobs on a fresh server."""
    with stock_redis(executable=executable) as server, queue_at(server.url) as queue:
        handle, calls = clocked(queue.handle, server.pid)
        found: dict[str, Called] = {}

        def step(name: str, act: Callable[[QueueHandle, int], None]) -> None:
            calls.times.clear()
            act(handle, jobs)
            found[name] = _called(calls, jobs)
            print(f"{jobs:>12,}  {name:20}{_shown(found[name])}", flush=True)

        step("dispatch", dispatch)
        step("counts and pages", look)
        finish(queue.handle, jobs)
        step("collect", collect)
        step("clean completed", clean_completed)
        queue.add_many(overdue(jobs, time.time_ns() // 1_000_000 - 60_000))
        step("promote delayed", promote)
        step("drain", drain_all)
        return found


def _called(calls: Calls, jobs: int) -> Called:
    times = sorted(time * 1e3 for of_one in calls.times.values() for time in of_one)
    over = sum(time > MAX_MS for time in times)
    return Called(sum(times) * 1e3 / jobs, times[len(times) // 2], times[-1], len(times), over)


def _shown(one: Called) -> str:
    return (
        f"{one.us_per_job:8.2f} us/job{one.median_ms:8.2f} ms{one.longest_ms:8.2f} ms at most"
        f"{one.calls:9,} calls{one.over:6} over {MAX_MS:g} ms"
    )


def main() -> None:
    print(json.dumps({name: asdict(one) for name, one in measured(int(sys.argv[1]), *sys.argv[2:]).items()}))


if __name__ == "__main__":
    main()

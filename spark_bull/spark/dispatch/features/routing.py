"""The queue that a row goes to: a shard of its queue (option `shards`), or the queue of its priority.

Bull 1 has no priorities, but its PriorityQueue is a queue for each priority by name.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from zlib import crc32

from spark_bull.core.dialects.base import Dialect
from spark_bull.core.dialects.encode.chunks import EncodedJobs, listed
from spark_bull.core.dialects.terms import DEDUPLICATION, PRIORITY, QueuePriority, priority_number
from spark_bull.core.errors import OptionError
from spark_bull.core.keys import QueueKeys, priority_queue
from spark_bull.core.queue.dispatch.registration import SHARDS_EPOCH
from spark_bull.core.queue.dispatch.roll_forward import recover
from spark_bull.core.queue.dispatch.write_records import Fields
from spark_bull.core.queue.handle.handle import QueueHandle
from spark_bull.core.queue.shards.layout import ShardLayout
from spark_bull.core.queue.shards.reshard import settled_layout
from spark_bull.core.store.round_trips import all_together
from spark_bull.spark.dispatch.feature import Plan, Router, TaskRows, TaskWrite, WriteFeature, WriteRequest
from spark_bull.spark.dispatch.rows import SEQUENCE, SHARD
from spark_bull.spark.staging.columns import QueueRows, split
from spark_bull.spark.staging.plan import TaskPart

#: What does not hold over several queues, and why.
_REFUSED: Final = {
    PRIORITY: "workers take the jobs of each shard by priority, but not across shards",
    "maxLength": "each shard has its own length",
    "onFinish": "its job is the parent of all jobs of the write, but a script reaches the jobs of one shard only",
}
_JOB_ID: Final = "jobId"


@dataclass(frozen=True)
class Shards(WriteFeature):
    """layout: the shards. first: shard 0. has_key: whether all jobs with the same deduplication id are in one shard."""

    layout: ShardLayout
    first: QueueHandle
    has_key: bool

    @classmethod
    def planned(cls, request: WriteRequest) -> Shards | None:
        options, rows = request.options, request.rows
        if options.shards is None:
            return None
        if options.queue is None:
            raise OptionError(
                "expected the option `queue` with `shards`, got a column `queue`: write once for each queue"
            )
        for name, reason in _REFUSED.items():
            if name in rows.columns or options.value(name) is not None:
                raise OptionError(f"expected no `{name}` with `shards`: {reason}; leave it out")
        for name, columns in (("sequenceBy", rows.sequence_by), ("uniqueBy", rows.unique_by)):
            if columns and rows.shard_by not in ((), columns):
                raise OptionError(
                    f"expected `shardBy` to list the columns of `{name}`, got others: jobs with the same key have to "
                    "be in one shard; leave `shardBy` out"
                )
        if not rows.shard_by and (DEDUPLICATION in rows.columns or "id" in (options.deduplication or {})):
            raise OptionError(
                f"expected `shardBy` with `shards` and `{DEDUPLICATION}`, got none: jobs with the same deduplication "
                "id have to be in one shard; use `uniqueBy`, or name a column"
            )
        return cls(*settled_layout(options, options.queue), bool(rows.shard_by or rows.unique_by))

    def router(self, task: TaskWrite) -> Router:
        return ShardRouter(self.layout, task.attempt.partition).split

    def encode(self, jobs: EncodedJobs, rows: TaskRows) -> EncodedJobs:
        """Raises OptionError for what shards can't keep in the `opts` of a row."""
        for number, priority, job_id in zip(
            rows.numbers, listed(jobs.priority, jobs.n), listed(jobs.deduplication_id, jobs.n), strict=True
        ):
            if priority:
                raise OptionError(f"row {number}: expected no `{PRIORITY}` with `shards`: {_REFUSED[PRIORITY]}")
            if job_id is not None and not self.has_key:
                raise OptionError(f"row {number}: expected `shardBy` with `shards` and a deduplication id, got none")
        return jobs

    def queue_record(self, plan: Plan, handle: QueueHandle, parts: Sequence[TaskPart]) -> Fields:
        return {SHARDS_EPOCH: self.layout.epoch} if handle is plan.handle else {}

    def recover(self, plan: Plan) -> None:
        """Finishes interrupted writes to all shards: a repeated write may have no rows for some of them."""
        keys = [QueueKeys(name, plan.options.prefix) for name in self.layout.all_names]
        unfinished = self.first.connection.pipeline([("EXISTS", one["open_writes"]) for one in keys])
        names = [one.queue for one, found in zip(keys, unfinished, strict=True) if found]
        all_together([*plan.handles_of(names).values()], recover)


@dataclass
class ShardRouter:
    """Routes the rows of one task. turn: number of the shard that the next row without a key goes to."""

    layout: ShardLayout
    turn: int

    def split(self, queue: str, rows: dict[str, list[Any]], numbers: Sequence[int]) -> Iterator[QueueRows]:
        """Splits rows of the logical queue, given by column, by their shard."""
        names = self.layout.names
        keys = _keys(rows)
        if keys is not None:
            yield from split(
                rows, [self._next() if key is None else names[shard_of(key, len(names))] for key in keys], numbers
            )
            return
        for shift in range(min(len(names), len(numbers))):
            some = {column: values[shift :: len(names)] for column, values in rows.items()}
            yield names[(self.turn + shift) % len(names)], some, numbers[shift :: len(names)]
        self.turn += len(numbers)

    def _next(self) -> str:
        """The shard of the next row without a key."""
        self.turn += 1
        return self.layout.names[(self.turn - 1) % self.layout.count]


def shard_of(key: str, shards: int) -> int:
    """The number of the shard of a key, the JSON text of an array of values: its CRC-32 modulo the number of shards."""
    return crc32(key.encode()) % shards


def _keys(rows: dict[str, list[Any]]) -> Sequence[str | None] | None:
    """The keys of rows, as JSON texts, None for a row without a job id; None if no row has a key."""
    if SHARD in rows:
        return rows.pop(SHARD)
    if SEQUENCE in rows:
        return rows[SEQUENCE]
    if isinstance(found := rows.get(DEDUPLICATION), list) and found:
        return found
    if _JOB_ID in rows:
        return [None if one is None else json.dumps([str(one)], ensure_ascii=False) for one in rows[_JOB_ID]]
    return None


#: The priority of a row without one, if others have one, as in Bull 1.
_DEFAULT = "normal"


@dataclass(frozen=True)
class PriorityQueues(WriteFeature):
    @classmethod
    def planned(cls, request: WriteRequest) -> PriorityQueues | None:
        return cls() if PRIORITY in request.rows.columns or request.options.priority is not None else None

    def router(self, task: TaskWrite) -> Router:
        default = task.defaults.get(PRIORITY)

        def split_named(queue: str, rows: dict[str, list[Any]], numbers: Sequence[int]) -> Iterator[QueueRows]:
            is_named = isinstance(default, str) or any(isinstance(value, str) for value in rows.get(PRIORITY, ()))
            if is_named and task.handle(queue).dialect.has("priority-queues"):
                yield from _by_priority(queue, rows, default, numbers)
            else:
                yield queue, rows, numbers

        return split_named


def named_default(dialect: Dialect, defaults: Mapping[str, Any]) -> dict[str, Any]:
    """The defaults as jobs in the queue of a priority have them."""
    name = defaults.get(PRIORITY)
    is_queue = isinstance(name, str) and dialect.has("priority-queues")
    return {**defaults, PRIORITY: QueuePriority(name)} if is_queue else {**defaults}


def _by_priority(
    queue: str, rows: Mapping[str, Sequence[Any]], default: str | None, numbers: Sequence[int]
) -> Iterator[QueueRows]:
    """Splits rows by the names of their priorities. Raises OptionError for an unknown name."""
    names = [name or default or _DEFAULT for name in rows.get(PRIORITY) or [None] * len(numbers)]
    for name, number in zip(names, numbers, strict=True):
        try:
            priority_number(name)
        except OptionError as error:
            raise OptionError(f"row {number}: {error}") from None
    for name, some, own in split(rows, names, numbers):
        some[PRIORITY] = [QueuePriority(name)] * len(own)
        yield priority_queue(queue, name), some, own

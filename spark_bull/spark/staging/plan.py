"""The plan of a write, created on the driver before any task starts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from spark_bull.errors import DialectError
from spark_bull.options import Options
from spark_bull.queue.handle import QueueHandle, open_handle
from spark_bull.queue.writes import Identity, is_written
from spark_bull.spark.staging.messages import TaskPart, Written


@dataclass(frozen=True, kw_only=True)
class StagedPlan:
    """Picklable.

    started_on: time of Redis, ms since 1970. handle: the queue of the option `queue`, None if rows name their queues.
    replayed: whether a write with this identity was committed before.
    """

    options: Options
    write_id: str
    started_on: int
    handle: QueueHandle | None = None
    replayed: bool = False

    def handle_of(self, queue: str, dialect: str | None = None) -> QueueHandle:
        """Opens a queue that a row or a message names. Raises DialectError if its dialect is not `dialect`."""
        if self.handle is not None and self.handle.keys.queue == queue:
            return self.handle
        handle = open_handle(self.options, queue)
        if dialect is not None and handle.dialect.name != dialect:
            raise DialectError(
                f"expected queue {queue} to have dialect {dialect}, as when its rows were written, got "
                f"{handle.dialect.name}: set the option `protocol`"
            )
        return handle

    def was_committed(self, identity: Identity | None) -> bool:
        """Whether a task has nothing to stage: the write, or an earlier one with its identity, was committed."""
        if self.replayed:
            return True
        return identity is not None and self.handle is not None and is_written(self.handle, identity)

    def parts_by_queue(self, written: Sequence[Written]) -> dict[str, list[TaskPart]]:
        """The parts of all tasks; that of the option `queue` also without rows."""
        by_queue: dict[str, list[TaskPart]] = defaultdict(list)
        if self.handle is not None:
            by_queue[self.handle.keys.queue] = []
        for message in written:
            for part in message.parts:
                by_queue[part.queue].append(part)
        return by_queue

    def begun_on(self, written: Sequence[Written]) -> int:
        """When the write began, ms since 1970.

        Spark plans each batch of a stream twice, for its tasks and for its commit.
        """
        return min([self.started_on, *(message.started_on for message in written)])

"""The plan of a write, created on the driver before any task starts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from spark_bull.errors import DialectError
from spark_bull.options.parse import Options
from spark_bull.queue.core.handle import QueueHandle, opening
from spark_bull.queue.dispatch.writes import Identity, is_written
from spark_bull.spark.staging.messages import TaskPart, Written
from spark_bull.store.connection import Connection
from spark_bull.store.settings import settings_of
from spark_bull.store.steps import run_all


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

    def handle_of(self, queue: str) -> QueueHandle:
        """Opens a queue that a row or a message names."""
        return self.handles_of([queue])[queue]

    def handles_of(self, queues: Iterable[str]) -> dict[str, QueueHandle]:
        """Opens many queues in shared round trips."""
        own = self.handle
        others = [queue for queue in queues if own is None or queue != own.keys.queue]
        opened = run_all(Connection(settings_of(self.options)), [opening(self.options, queue) for queue in others])
        return dict(zip(others, opened, strict=True)) | ({own.keys.queue: own} if own is not None else {})

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

    def handles_and_parts(self, written: Sequence[Written]) -> list[tuple[QueueHandle, list[TaskPart]]]:
        """As `parts_by_queue`, with opened queues. Raises DialectError if one has another dialect than its rows."""
        by_queue = self.parts_by_queue(written)
        handles = self.handles_of(by_queue)
        for queue, parts in by_queue.items():
            dialect = handles[queue].dialect.name
            if parts and dialect != parts[0].dialect:
                raise DialectError(
                    f"expected queue {queue} to have dialect {parts[0].dialect}, as when its rows were written, got "
                    f"{dialect}: set the option `protocol`"
                )
        return [(handles[queue], parts) for queue, parts in by_queue.items()]

    def begun_on(self, written: Sequence[Written]) -> int:
        """When the write began, ms since 1970.

        Spark plans each batch of a stream twice, for its tasks and for its commit.
        """
        return min([self.started_on, *(message.started_on for message in written)])

"""The messages that the tasks of a write send to its commit."""

from __future__ import annotations

from dataclasses import dataclass, field

from pyspark.sql.datasource import WriterCommitMessage

from spark_bull.core.queue.dispatch.stages import Identity, StagedPart


@dataclass(kw_only=True)
class TaskPart(StagedPart):
    """The rows that a task has written to one queue. `stage` is empty if they are added directly. `flow_queues`: the
    other queues that have children of these jobs, or that jobs are moved to. `graph`: the ids of the jobs, each with
    those that it depends on. `schedulers`: the ids of the rows' job
    schedulers; `frequent`: the ids of the ones with very short intervals.
    """

    queue: str
    dialect: str
    stage: str = ""
    chunks: int = 0
    rows: int = 0
    added: int = 0
    duplicates: int = 0
    deduplicated: int = 0
    rejected: int = 0
    dropped: int = 0
    flow_queues: set[str] = field(default_factory=set)
    graph: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)
    schedulers: tuple[str, ...] = ()
    frequent: tuple[str, ...] = ()


@dataclass(frozen=True)
class CommitMessage(WriterCommitMessage):
    """The commit message of a task: what it wrote to each queue, and when it started (time of Redis, ms since 1970)."""

    write_id: str
    parts: tuple[TaskPart, ...]
    started_on: int
    identity: Identity | None = None

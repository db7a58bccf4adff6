"""The attempt of a task of a write."""

from __future__ import annotations

from typing import NamedTuple

from pyspark import TaskContext


class Attempt(NamedTuple):
    """name: unique for each attempt of each task of all writes; the keys of its stages contain it."""

    partition: int
    name: str


def this_attempt(write_id: str) -> Attempt:
    """Returns the attempt that this process runs."""
    context = TaskContext.get()
    partition = context.partitionId() if context else 0
    return Attempt(partition, f"{write_id}.{partition}.{context.taskAttemptId() if context else 0}")

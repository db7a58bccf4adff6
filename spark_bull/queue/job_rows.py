"""Reads fields of jobs by their ids, many jobs per round trip.

This takes a third of the CPU of Redis that a script takes, and other clients' commands run between those of two jobs.
Each job is read in one step, but not together with its state.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from spark_bull.dialects.fields import ALWAYS_THERE, Raw
from spark_bull.queue.handle import CHUNK_SIZE, QueueHandle
from spark_bull.store.connection import Command

#: Approximate maximum size of the jobs that one round trip reads.
MAX_BYTES: Final = 1 << 20
#: Number of jobs that the first round trip reads; jobs may be large.
FIRST: Final = 4
#: A following round trip reads this many times as many jobs, unless they are too large.
GROWTH: Final = 4
#: Jobs of a round trip whose sizes are measured.
SAMPLE: Final = 16
#: Up to this number of fields HMGET is cheaper. HGETALL scans a small hash once, HMGET once for each field.
MOST_PICKED: Final = 8

#: The values of fields of one job, None for those that it lacks.
Row = list[Raw]


class JobRows:
    """Reads `fields` of jobs; `timestamp` is always the first one. most: maximum number of jobs per round trip."""

    def __init__(self, handle: QueueHandle, fields: Sequence[str], most: int = CHUNK_SIZE) -> None:
        self.fields: Final = tuple(dict.fromkeys([ALWAYS_THERE, *fields]))
        #: The number of jobs that the next round trip should read.
        self.window = min(FIRST, most)
        self._most = most
        self._connection = handle.connection
        self._base = handle.keys.base.encode()
        self._names = [name.encode() for name in self.fields]
        # A job that is read without its data may be much larger than the fields.
        self._whole = "data" in self.fields and len(self.fields) > MOST_PICKED

    def read(self, ids: Sequence[bytes], *checks: Command) -> tuple[list[Row], list[Any]]:
        """The rows of these jobs, and the replies of `checks`, which Redis runs after them.

        A row of a job that does not exist, or whose key is not a hash, has no values.
        """
        keys = [self._base + job_id for job_id in ids]
        commands: list[Command] = [("HGETALL", key) if self._whole else ("HMGET", key, *self._names) for key in keys]
        replies = self._connection.replies([*commands, *checks])
        rows = [self._row(reply) for reply in replies[: len(keys)]]
        self._adapt(rows)
        return rows, replies[len(keys) :]

    def are_jobs(self, ids: Sequence[bytes], rows: Sequence[Row]) -> list[bool]:
        """Which rows are jobs: what is left of a removed one has neither timestamp nor data."""
        unclear = [job_id for job_id, row in zip(ids, rows, strict=True) if row[0] is None]
        replies = self._connection.replies([("HEXISTS", self._base + job_id, "data") for job_id in unclear])
        found = {job_id for job_id, reply in zip(unclear, replies, strict=True) if reply}
        return [row[0] is not None or job_id in found for job_id, row in zip(ids, rows, strict=True)]

    def _row(self, reply: Any) -> Row:
        if reply is None:
            return [None] * len(self._names)
        if not self._whole:
            return reply  # type: ignore[no-any-return]
        values: Mapping[bytes, bytes] = reply if isinstance(reply, dict) else dict(zip(*[iter(reply)] * 2, strict=True))
        return list(map(values.get, self._names))

    def _adapt(self, rows: Sequence[Row]) -> None:
        """Sets `window` by the sizes of some of the jobs that were read."""
        sample = rows[:: max(1, len(rows) // SAMPLE)]
        size = sum(len(value) for row in sample for value in row if value) // max(1, len(sample))
        self.window = max(1, min(MAX_BYTES // max(1, size), GROWTH * self.window, self._most))

"""How the jobs of a write have ended that do not exist any more, by their events (BullMQ)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from spark_bull.core.dialects.fields import Raw
from spark_bull.core.errors import ResultsLost
from spark_bull.core.queue.handle.handle import QueueHandle

#: Events that one command reads.
_EVENTS: Final = 1_000
#: The events that end a job, with the field of its value.
_VALUES: Final = {b"completed": b"returnvalue", b"failed": b"failedReason"}
#: The events of a job that is added: those after them are kept, as Redis removes the oldest ones first.
_BEGINS: Final = (b"added", b"duplicated")


class End(NamedTuple):
    """How a job has ended: its state, and fields of its hash."""

    state: str
    fields: Mapping[str, Raw]


class WrittenEnds:
    """The ends of the jobs of a queue since a time, ms since 1970.

    strict: whether `of` raises ResultsLost for a job whose events are gone, or that no event tells of.
    """

    def __init__(self, handle: QueueHandle, since_ms: int, *, strict: bool) -> None:
        self._handle = handle
        self._after = f"({since_ms - 1}-18446744073709551615" if since_ms > 0 else "-"
        self._strict = strict
        self._begun: set[bytes] = set()
        self._ends: dict[bytes, End] = {}

    def of(self, ids: Sequence[bytes]) -> list[End | None]:
        """The ends of jobs that are gone; None for one that was removed before it had ended. Raises ResultsLost."""
        if self._handle.dialect.has("event-stream"):
            self._read_events()
        ends = [self._ends.get(job_id) for job_id in ids]
        lost = [job_id for job_id, end in zip(ids, ends, strict=True) if end is None and job_id not in self._begun]
        if lost and self._strict:
            raise self._lost(lost)
        return ends

    def _read_events(self) -> None:
        """Reads the events that are new."""
        while entries := self._handle.connection.call(
            "XRANGE", self._handle.keys["events"], self._after, "+", "COUNT", _EVENTS
        ):
            for entry_id, fields in entries:
                event, job_id = fields.get(b"event", b""), fields.get(b"jobId", b"")
                if event in _BEGINS:
                    self._begun.add(job_id)
                elif event in _VALUES:
                    value, time = _VALUES[event], entry_id.partition(b"-")[0]
                    self._ends[job_id] = End(event.decode(), {value.decode(): fields.get(value), "finishedOn": time})
            self._after = f"({entries[-1][0].decode()}"

    def _lost(self, ids: Sequence[bytes]) -> ResultsLost:
        queue, first = self._handle.keys.queue, ids[0].decode("utf-8", "replace")
        why = f"{self._handle.dialect.name} keeps no events, which would tell how they have ended: keep jobs longer"
        if self._handle.dialect.has("event-stream"):
            why = (
                "the event stream was trimmed, or their events were left out (option `events`), so nothing tells how "
                "they have ended: read results sooner, let BullMQ keep more events (streams.events.maxLen of the "
                "Queue), or keep jobs longer"
            )
        return ResultsLost(
            f"queue {queue}: {len(ids):,} or more jobs of the write are gone, the first is job {first}, and {why} "
            "(removeOnComplete, removeOnFail), or set failOnDataLoss=false to get rows with the state NULL"
        )

"""Metrics of the jobs of one queue of a slot."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from spark_bull.core.model.outcomes import Claim, Outcomes

if TYPE_CHECKING:
    from spark_bull.core.tracing.otel import JobMeter, State


class _Held(NamedTuple):
    """A job that the slot holds. since: when it was claimed, ms since 1970, by Redis' clock."""

    name: str | None
    since: int


class QueueMeter:
    """Records each job when it is settled, as BullMQ's workers do. Jobs that return as they were are not recorded."""

    def __init__(self, meter: JobMeter, queue: str) -> None:
        self._meter = meter
        self._queue = queue
        self._held: dict[str, _Held] = {}

    def add(self, outcomes: Outcomes | None, claim: Claim) -> None:
        """Records the outcomes that a call has settled, and remembers the jobs that it has claimed."""
        if outcomes is not None:
            self._settle(outcomes, claim)
        self._held.update((job.id, _Held(job.name, claim.now)) for job in claim.jobs)

    def _settle(self, outcomes: Outcomes, claim: Claim) -> None:
        # A job that is blocked is settled again, with another outcome.
        blocked = {one.id: self._held[one.id] for one in claim.lost if one.is_blocked and one.id in self._held}
        for one in claim.lost:
            self._held.pop(one.id, None)
        for state, ids in _by_state(outcomes):
            settled = [held for job_id in ids if (held := self._held.pop(job_id, None)) is not None]
            if settled:
                self._meter.settled(self._queue, state, [(held.name, claim.now - held.since) for held in settled])
        for job_id in outcomes.unstarted:
            self._held.pop(job_id, None)
        self._held.update(blocked)


def _by_state(outcomes: Outcomes) -> Iterator[tuple[State, Iterable[str]]]:
    """The ids of the jobs by what becomes of them, as BullMQ names it."""
    yield "completed", outcomes.completed_ids
    yield "failed", (job.id for job in outcomes.failed)
    yield "retried", (job.id for job in outcomes.retried if not job.delay)
    yield "delayed", [*(job.id for job in outcomes.retried if job.delay), *(job.id for job in outcomes.delayed)]
    yield "waiting", [*outcomes.returned, *(job.id for job in outcomes.rested)]
    yield "waiting-children", outcomes.waiting_for_children

"""Public data types of jobs that are added; states of jobs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

STATES = (
    "wait",
    "active",
    "delayed",
    "prioritized",
    "paused",
    "waiting-children",
    "completed",
    "failed",
)
#: States of jobs that have ended.
ENDED = frozenset({"completed", "failed"})
#: States of jobs that are neither active nor have ended: those that the length of a queue counts.
NOT_STARTED = frozenset(STATES) - ENDED - {"active"}

#: Delay before the next attempt: ms, or a mapping with `type`, `delay` (ms) and, in BullMQ, `jitter` (0 to 1).
Backoff = int | Mapping[str, Any]
#: A number, 1 is the highest, or a name: critical, high, medium, normal, low.
Priority = int | str
#: How many finished jobs to keep: True none, False all, a number as many jobs, or {"age": seconds, "count": jobs}.
KeepRule = bool | int | Mapping[str, int]
#: The deduplication id of a job, or a mapping with `id` and a rule, by the names of BullMQ.
Deduplication = str | Mapping[str, Any]


#: The parent of a job: a mapping with `queue`, `id` and, optionally, `onFailure`.
Parent = Mapping[str, str]


@dataclass(frozen=True)
class RawJson:
    """JSON text, stored unchanged.

    Parameters:
      text: the JSON text.
    """

    text: str


@dataclass(frozen=True)
class NewJob:
    """A job to add with BullQueue.add_many, or as a follow-up with RunningJob.then.

    A field that is None gets the queue's default, if it has one.

    Parameters:
      data: the payload: anything JSON can hold, or RawJson.
      name: the job's name, as in the Node library; default: `__default__`. BullMQ and Bull 3 and 4 only.
      job_id: the job's id; a job whose id exists in the queue is not added. Default: the queue's next number.
      delay: ms to wait before the job may run.
      run_at: when the job may run, ms since 1970; instead of `delay`.
      priority: 1 is the highest; 0 is none. `critical`, `high`, `medium`, `normal` and `low` are 1 to 5.
      attempts: maximum number of attempts, the first one included.
      backoff: the delay before the next attempt, ms; or a mapping with `type`, `delay` (ms) and, in BullMQ, `jitter` (0
        to 1). The type is fixed, exponential, or a custom type of the workers.
      lifo: True makes the job the next one of those that wait.
      remove_on_complete: True removes the job once it has completed, False keeps it; a number keeps as many completed
        jobs of the queue; {"age": seconds, "count": jobs} limits both.
      remove_on_fail: the same for a job that has failed.
      timestamp: creation time of the job, ms since 1970; default: the current time of Redis.
      opts: other options of the Node library, by its own names; they take precedence over the others.
      deduplication: an id that one unfinished job of the queue can have: while it is taken, the job is not added. Or a
        mapping with `id` and a rule: `ttl` (ms), `extend`, `replace`, `reschedule`, `keepLastIfActive` as in BullMQ,
        `maxDelay` (ms) and `deferrableBy` (s). Bull 4 has only `id` and `ttl`; Bull 1 to 3 have no such ids.
      parent: a job that waits for this one: a mapping with its `queue`, `id` and optionally `onFailure`. That is what
        becomes of it when this job fails: `wait` (the default), `fail`, `continue`, `ignore` or `remove`. BullMQ only.
      expire_after_ms: ms after its creation, after which the job does not start any more: it fails as `expired`.
      expire_at: when that is, ms since 1970; instead of `expire_after_ms`.
      spread_ms: the job is delayed by a time up to this one, ms, in addition to its delay; jobs that
        are added together get different times.
      delivery: `at-most-once`: the job never runs twice, and fails if its worker dies; default: `at-least-once`.
      lock_ms: duration of the job's lock, ms, instead of the worker's. Workers of Node ignore it.
    """

    data: Any
    name: str | None = None
    job_id: str | None = None
    delay: int | None = None
    run_at: int | None = None
    priority: Priority | None = None
    attempts: int | None = None
    backoff: Backoff | None = None
    lifo: bool | None = None
    remove_on_complete: KeepRule | None = None
    remove_on_fail: KeepRule | None = None
    timestamp: int | None = None
    opts: Mapping[str, Any] | None = None
    deduplication: Deduplication | None = None
    parent: Parent | None = None
    expire_after_ms: int | None = None
    expire_at: int | None = None
    spread_ms: int | None = None
    delivery: str | None = None
    lock_ms: int | None = None


@dataclass(frozen=True)
class Added:
    """The result of adding jobs.

    Parameters:
      ids: ids of the jobs, in the order given; for a deduplicated one, the id of the job that was there first.
      added: number of jobs that were added.
      duplicates: number of jobs that were not added because their id existed.
      deduplicated: number of jobs that were not added because their deduplication id was taken.
      rejected: why jobs were not added as children, by their positions from 0: `missing` (the parent), `other parent`,
        `cycle`; their id is "".
      dropped: number of jobs that were not added because the queue was full (`when_full="drop"`); their id is "".
      replicas: number of replicas of Redis that have the jobs, with the argument `replicas` of the queue; else None.
    """

    ids: list[str]
    added: int
    duplicates: int
    deduplicated: int = 0
    rejected: Mapping[int, str] = field(default_factory=dict)
    dropped: int = 0
    replicas: int | None = None

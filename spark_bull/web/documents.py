"""The documents of the API. Jobs have Bull's own names of fields; times are ms since 1970, durations ms."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from spark_bull.model.jobs import NewJob

State = Literal["wait", "active", "delayed", "prioritized", "paused", "waiting-children", "completed", "failed"]
#: Largest number of a request: the largest integer that JavaScript has.
Number = Annotated[int, Field(ge=0, le=2**53 - 1)]
#: How many jobs one request changes at most.
Most = Annotated[int, Field(ge=1, le=10_000, description="maximum number of jobs of one request")]
Text = Annotated[str, Field(min_length=1, max_length=10_000)]


class Strict(BaseModel):
    """A body: unknown properties and wrong types are errors."""

    model_config = ConfigDict(extra="forbid", strict=True)


class JobDocument(BaseModel):
    """A job. Texts that are not JSON, in fields that hold JSON, are strings."""

    queue: str = Field(examples=["mail"])
    id: str = Field(examples=["42"])
    state: State | None = Field(description="null: it is in no state's list", examples=["failed"])
    name: str | None = Field(examples=["send"])
    data: Any = Field(description="the payload", examples=[{"to": "ada@example.org"}])
    opts: Any = Field(description="the options, by the names of the Node library", examples=[{"attempts": 3}])
    progress: Any = None
    returnvalue: Any = None
    failedReason: str | None = None
    stacktrace: list[str] = Field(description="of failed attempts, oldest first")
    attemptsMade: int
    attemptsStarted: int | None = Field(description="BullMQ only")
    stalledCounter: int
    timestamp: int | None = Field(description="when it was added")
    processedOn: int | None = Field(description="when its last attempt started")
    finishedOn: int | None = Field(description="when it completed or failed")
    delay: int
    runAt: int | None = Field(description="when a delayed job is due")
    priority: int
    processedBy: str | None = Field(description="name of the worker; BullMQ only")
    parentKey: str | None = Field(description="Redis key of its parent; BullMQ only")
    deduplicationId: str | None
    repeatJobKey: str | None = Field(description="key of the schedule that made it")


class JobPage(BaseModel):
    """Some jobs. `next`: cursor of the next page, also of one with fewer jobs than asked for; null: there is none."""

    jobs: list[JobDocument]
    next: str | None = Field(examples=["k8QGdGhlcmU"])


class QueueFeatures(BaseModel):
    """What a queue of this dialect has."""

    events: bool = Field(description="whether its events are kept")
    flows: bool = Field(description="whether jobs have children")
    priorities: bool
    limits: bool = Field(description="whether the queue has limits over all workers")
    schedulers: bool
    retryableStates: list[State]


class LimitsDocument(BaseModel):
    """The limits of a queue over all its workers; null: there is none."""

    concurrency: int | None
    max: int | None
    durationMs: int | None
    limitedMs: int = Field(description="time until the next job may start")


class QueueDocument(BaseModel):
    """A queue. `counts`: the number of jobs by state."""

    queue: str = Field(examples=["mail"])
    protocol: str = Field(description="dialect of the queue")
    version: str | None = Field(description="version of BullMQ that last opened it")
    paused: bool
    intakeOpen: bool = Field(description="whether it accepts jobs of spark_bull")
    counts: dict[str, int] = Field(examples=[{"wait": 3, "active": 1, "failed": 0}])


class QueueDetails(QueueDocument):
    """A queue with its activity. Null: the dialect keeps nothing that shows it."""

    features: QueueFeatures
    limits: LimitsDocument | None
    ids: int = Field(description="value of the counter of ids")
    waitingSince: int | None = Field(description="when the job that comes next was added")
    lastActiveOn: int | None
    addedPerMinute: float | None
    finishedPerMinute: float | None


class QueuePage(BaseModel):
    """Some queues. `next`: cursor of the next page; null: there is none."""

    next: str | None = Field(examples=["k8QGdGhlcmU"])
    partial: bool = Field(description="whether the page ends before `limit`, as reading took too long")


class QueueList(QueuePage):
    """Some queues, by name."""

    queues: list[QueueDocument]


class PercentilesDocument(BaseModel):
    """Durations, ms, that 50, 95 and 99 % of the jobs do not exceed."""

    p50: float
    p95: float
    p99: float


class StatsDocument(BaseModel):
    """Statistics of the jobs of a queue, or of one name."""

    queue: str
    name: str | None = Field(description="null: all jobs of the queue")
    jobs: dict[str, int] = Field(description="the number of jobs by state")
    isEstimate: bool = Field(description="whether the numbers are those of a sample")
    oldestWaitingMs: int | None = Field(description="age of the oldest job that waits")
    timed: int = Field(description="number of ended jobs whose times count")
    wait: PercentilesDocument | None = Field(description="time from being added to the start")
    run: PercentilesDocument | None = Field(description="time from the start to the end")
    addedPerS: float | None
    addedOverMs: int | None
    finishedPerS: float | None
    finishedOverMs: int | None


class StatsList(BaseModel):
    """Statistics, those of all jobs of a queue first."""

    stats: list[StatsDocument]


class StatsPage(StatsList, QueuePage):
    """Statistics of some queues, by name."""


class MetricsDocument(BaseModel):
    """Ended jobs, as workers with metrics count them. `data`: per minute, the newest minute first."""

    queue: str
    state: Literal["completed", "failed"]
    count: int
    prevTs: int
    prevCount: int
    data: list[int]
    points: int
    start: int


class LogDocument(BaseModel):
    """Some rows of a job's log. `start`: position of the first one."""

    start: int
    rows: list[str]
    total: int


class ParentDocument(BaseModel):
    """A parent of a job."""

    queue: str
    id: str


class ChildDocument(BaseModel):
    """A child of a job. `value`: its return value, or the reason of an ignored failure."""

    queue: str
    id: str
    state: Literal["unprocessed", "processed", "ignored", "failed"]
    value: Any = None


class FamilyDocument(BaseModel):
    """The parent and children of a job. `counts`: of all children by state; `children`: the first ones."""

    parent: ParentDocument | None
    counts: dict[str, int]
    children: list[ChildDocument]


class WriteDocument(BaseModel):
    """The record of a write of Spark."""

    id: str
    queue: str
    state: str = Field(description="open, finished or broken")
    delivery: str
    jobs: int
    done: int
    added: int
    duplicates: int
    deduplicated: int
    rejected: int
    dropped: int
    replicas: int | None
    changed: int
    missing: int
    locked: int
    wrongState: int
    startedOn: int | None
    finishedOn: int | None
    durationMs: int | None
    appId: str | None
    version: int | None


class WriteList(BaseModel):
    """Writes of the last 30 days, the oldest first, unfinished ones last."""

    writes: list[WriteDocument]


class LedgerDocument(BaseModel):
    """The ledger of a query that reads results. `entries`: those that are not committed."""

    queue: str
    reader: str
    owner: str | None
    entries: int
    expiresInMs: int | None = Field(description="null: never")


class LedgerList(BaseModel):
    """Ledgers, by reader."""

    ledgers: list[LedgerDocument]


class WorkerDocument(BaseModel):
    """A connection of a worker. `name`: null if the library sets none."""

    name: str | None
    address: str
    ageMs: int
    idleMs: int


class SlotDocument(BaseModel):
    """A slot of a worker of Spark, as it last reported."""

    worker: str
    slot: int
    state: str = Field(description="starting, idle, busy or stopped")
    startedOn: int
    claimed: int
    completed: int
    failed: int
    retried: int
    returned: int
    lost: int


class WorkerList(BaseModel):
    """The connected workers of a queue, and the slots of those of Spark."""

    workers: list[WorkerDocument]
    slots: list[SlotDocument]


class SchedulerDocument(BaseModel):
    """A schedule. `next`: when its next job is due."""

    queue: str
    id: str
    name: str | None
    next: int
    every: int | None
    pattern: str | None
    tz: str | None
    limit: int | None
    offset: int | None
    startDate: int | None
    endDate: int | None
    iterationCount: int | None
    data: Any = None
    opts: Any = None


class SchedulerList(BaseModel):
    """Schedules, those that are due first at the beginning."""

    schedulers: list[SchedulerDocument]


class KeepDocument(Strict):
    """How many ended jobs to keep. `age`: s; `count`: jobs."""

    age: Number | None = None
    count: Number | None = None


class NewJobDocument(Strict):
    """A job to add. A property that is null, or missing, has the default of the Node library."""

    data: Any = Field(description="the payload", examples=[{"to": "ada@example.org"}])
    name: Text | None = Field(default=None, examples=["send"])
    jobId: Text | None = Field(default=None, description="a job whose id exists is not added")
    delay: Number | None = None
    runAt: Number | None = Field(default=None, description="instead of `delay`")
    priority: Number | Text | None = Field(
        default=None, description="1 is the highest; or critical, high, medium, normal, low"
    )
    attempts: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = Field(default=None, examples=[3])
    backoff: Number | dict[str, Any] | None = Field(default=None, description="ms, or {type, delay, jitter}")
    lifo: bool | None = None
    removeOnComplete: bool | Number | KeepDocument | None = None
    removeOnFail: bool | Number | KeepDocument | None = None
    timestamp: Number | None = None
    deduplication: Text | dict[str, Any] | None = Field(default=None, description="an id, or {id, ttl, …}")
    parent: dict[str, str] | None = Field(default=None, description="{queue, id, onFailure}; BullMQ only")
    expireAfter: Number | None = None
    expireAt: Number | None = None
    spreadMs: Number | None = None
    delivery: Literal["at-least-once", "at-most-once"] | None = None
    lockMs: Number | None = None
    opts: dict[str, Any] | None = Field(default=None, description="further options, by the names of the Node library")

    def new_job(self) -> NewJob:
        """The job to add."""
        return NewJob(
            self.data,
            self.name,
            job_id=self.jobId,
            delay=self.delay,
            run_at=self.runAt,
            priority=self.priority,
            attempts=self.attempts,
            backoff=self.backoff,
            lifo=self.lifo,
            remove_on_complete=_keep_rule(self.removeOnComplete),
            remove_on_fail=_keep_rule(self.removeOnFail),
            timestamp=self.timestamp,
            opts=self.opts,
            deduplication=self.deduplication,
            parent=self.parent,
            expire_after=self.expireAfter,
            expire_at=self.expireAt,
            spread_ms=self.spreadMs,
            delivery=self.delivery,
            lock_ms=self.lockMs,
        )


def _keep_rule(given: bool | int | KeepDocument | None) -> bool | int | dict[str, int] | None:
    return given.model_dump(exclude_none=True) if isinstance(given, KeepDocument) else given


class QueuedJobDocument(NewJobDocument):
    """A job to add to the queue that it names."""

    queue: Text = Field(examples=["mail"])


class AddedDocument(BaseModel):
    """Jobs that were added. `ids`: in the order given; of a deduplicated job, that of the job which has its id."""

    ids: list[str] = Field(examples=[["42"]])
    added: int = Field(examples=[1])
    duplicates: int = Field(description="not added, as their id existed")
    deduplicated: int = Field(description="not added, as their deduplication id was taken")


class JobPatch(Strict):
    """Changes of a job; at least one."""

    data: Any = Field(default=None, description="the new payload, also null", examples=[{"to": "grace@example.org"}])
    priority: Number | Text | None = Field(default=None, description="0 is none, 1 the highest; or a name")
    delay: Number | None = Field(default=None, description="ms from now; of a delayed job")


class RetryDocument(Strict):
    """How to retry a job."""

    state: Literal["failed", "completed"] = Field(default="failed", description="the state that the job must be in")
    resetAttempts: bool = Field(default=False, description="whether attempts count from 0 again")


class RetryAllDocument(RetryDocument):
    """Which jobs to retry."""

    name: Text | None = Field(default=None, description="only jobs of this name")
    limit: Most = 1_000


class PromoteAllDocument(Strict):
    """Which delayed jobs to promote."""

    name: Text | None = Field(default=None, description="only jobs of this name")
    limit: Most = 1_000


class CleanDocument(Strict):
    """Which jobs to remove."""

    state: State = "completed"
    graceMs: Number = Field(default=0, description="minimum age")
    limit: Most = 1_000


class DrainDocument(Strict):
    """Which waiting jobs to remove."""

    delayed: bool = Field(default=False, description="whether to remove delayed jobs, too")


class ReasonDocument(Strict):
    """Why a job is cancelled or fails."""

    reason: Text | None = None


class MoveDocument(Strict):
    """Where a job is moved."""

    to: Text = Field(description="name of another queue of the same dialect", examples=["late"])


class DoneDocument(BaseModel):
    """What a request has changed. `more`: whether the same request would change further jobs."""

    jobs: int = Field(description="number of changed jobs", examples=[1])
    skipped: int = Field(default=0, description="jobs that were in another state, locked or gone meanwhile")
    more: bool = False


class SchedulePut(Strict):
    """A schedule to create or change: `every` or `pattern`."""

    every: Annotated[int, Field(ge=1, le=2**53 - 1)] | None = Field(default=None, description="interval")
    pattern: Text | None = Field(default=None, description="cron pattern of 5 fields, or 6 with seconds first")
    tz: Text | None = Field(default=None, description="time zone of the pattern", examples=["Europe/Berlin"])
    name: Text | None = Field(default=None, description="name of the jobs")
    data: Any = Field(default=None, description="payload of the jobs")
    limit: Number | None = Field(default=None, description="maximum number of jobs")
    offset: Number | None = Field(default=None, description="BullMQ only")
    startDate: Number | None = None
    endDate: Number | None = None
    opts: dict[str, Any] | None = Field(default=None, description="options of the jobs, by the names of Node")


class NextDocument(BaseModel):
    """When the next job of a schedule is due."""

    next: int


class LimitsPut(Strict):
    """Limits of a queue over all its workers; those that are null, or missing, stay."""

    concurrency: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = None
    max: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = Field(default=None, description="jobs per `durationMs`")
    durationMs: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = None

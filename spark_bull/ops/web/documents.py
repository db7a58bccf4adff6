"""The documents of the API. Jobs have Bull's own names of fields; times are ms since 1970, durations ms."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AliasChoices, BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from spark_bull.core.model.jobs import NewJob
from spark_bull.core.model.limits import Group
from spark_bull.core.model.queues import JobStats, Percentiles, QueueLimits, QueueMetrics, Scheduler, WriteRecord
from spark_bull.core.model.read_jobs import Job
from spark_bull.core.queue.monitor.find import Ledger
from spark_bull.ops.web.shown import Shown

State = Literal["wait", "active", "delayed", "prioritized", "paused", "waiting-children", "completed", "failed"]
#: Largest number of a request: the largest integer that JavaScript has.
Number = Annotated[int, Field(ge=0, le=2**53 - 1)]
#: How many jobs one request changes at most.
Most = Annotated[int, Field(ge=1, le=10_000, description="maximum number of jobs of one request")]
Text = Annotated[str, Field(min_length=1, max_length=10_000)]


class Strict(BaseModel):
    """A body: names in camel case, unknown properties and wrong types are errors."""

    model_config = ConfigDict(extra="forbid", strict=True, alias_generator=to_camel)


JobDocument = Annotated[Job, Shown(state=State | None)]


class JobPage(BaseModel):
    """Some jobs. Texts that are not JSON, in properties that hold JSON, are strings.

    `next`: cursor of the next page, also of one with fewer jobs than asked for; null: there is none."""

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


class QueueDocument(BaseModel):
    """A queue. `counts`: the number of jobs by state."""

    queue: str = Field(examples=["mail"])
    protocol: str = Field(description="dialect of the queue")
    version: str | None = Field(description="version of BullMQ that last opened it")
    paused: bool
    pauseReason: str | None = Field(description="why a guard has paused it, and until when")
    intakeOpen: bool = Field(description="whether it accepts jobs of spark_bull")
    counts: dict[str, int] = Field(examples=[{"wait": 3, "active": 1, "failed": 0}])


class QueueDetails(QueueDocument):
    """A queue with its activity. Null: the dialect keeps nothing that shows it."""

    features: QueueFeatures
    limits: Annotated[QueueLimits, Shown()] | None
    ids: int = Field(description="value of the counter of ids")
    waitingSince: int | None = Field(description="when the job that comes next was added")
    lastActiveOn: int | None
    addedPerMinute: float | None
    finishedPerMinute: float | None


class UnreadableQueue(BaseModel):
    """A queue that could not be read, such as one with a damaged key."""

    queue: str
    error: str


class QueuePage(BaseModel):
    """Some queues. `next`: cursor of the next page; null: there is none."""

    next: str | None = Field(examples=["k8QGdGhlcmU"])
    partial: bool = Field(description="whether the page ends before `limit`, as reading took too long")


class QueueList(QueuePage):
    """Some queues, by name."""

    queues: list[QueueDocument | UnreadableQueue]


_Times = Annotated[Percentiles, Shown()] | None
StatsDocument = Annotated[JobStats, Shown(wait=_Times, run=_Times)]


class StatsList(BaseModel):
    """Statistics; the first are of all jobs of a queue."""

    stats: list[StatsDocument]


class StatsPage(QueuePage):
    """Statistics of some queues, by name."""

    stats: list[StatsDocument | UnreadableQueue]


MetricsDocument = Annotated[QueueMetrics, Shown(state=Literal["completed", "failed"])]


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


class FlowJobDocument(BaseModel):
    """A job of a flow. `dependency`: what has become of it for its parent; `childCount`: also of children not read."""

    queue: str
    id: str
    depth: int = Field(description="number of jobs above it")
    parent: ParentDocument | None
    dependency: Literal["unprocessed", "processed", "ignored", "failed"] | None
    childCount: int
    job: JobDocument | None


class FlowDocument(BaseModel):
    """The jobs of a flow, each before its children."""

    jobs: list[FlowJobDocument]


WriteDocument = Annotated[WriteRecord, Shown(duration_ms=int | None)]


class WriteList(BaseModel):
    """A page of the writes of the last 30 days: unfinished ones, then the others, each the newest first.

    next: `start` of the next page; null: there is none.
    """

    writes: list[WriteDocument]
    next: int | None


class LedgerList(BaseModel):
    """Ledgers, by reader."""

    ledgers: list[Annotated[Ledger, Shown()]]


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
    """The connected workers, null if the user of Redis may not see connections; and the slots of workers of Spark."""

    workers: list[WorkerDocument] | None
    slots: list[SlotDocument]


class SchedulerList(BaseModel):
    """Job schedulers, those that are due first at the beginning."""

    schedulers: list[Annotated[Scheduler, Shown()]]


class GroupList(BaseModel):
    """Groups of jobs that workers of Spark have met. `next`: the group to go on after, null at the end."""

    groups: list[Annotated[Group, Shown()]]
    next: str | None


class KeepDocument(Strict):
    """How many ended jobs to keep. `age`: s; `count`: jobs."""

    age: Number | None = None
    count: Number | None = None


class NewJobDocument(Strict):
    """A job to add. A property that is null, or missing, has the default of the Node library."""

    data: Any = Field(description="the payload", examples=[{"to": "ada@example.org"}])
    name: Text | None = Field(default=None, examples=["send"])
    job_id: Text | None = Field(default=None, description="a job whose id exists is not added")
    delay: Number | None = None
    run_at: Number | None = Field(default=None, description="instead of `delay`")
    priority: Number | Text | None = Field(
        default=None, description="1 is the highest; or critical, high, medium, normal, low"
    )
    attempts: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = Field(default=None, examples=[3])
    backoff: Number | dict[str, Any] | None = Field(default=None, description="ms, or {type, delay, jitter}")
    lifo: bool | None = None
    remove_on_complete: bool | Number | KeepDocument | None = None
    remove_on_fail: bool | Number | KeepDocument | None = None
    timestamp: Number | None = None
    deduplication: Text | dict[str, Any] | None = Field(default=None, description="an id, or {id, ttl, …}")
    parent: dict[str, str] | None = Field(default=None, description="{queue, id, onFailure}; BullMQ only")
    expire_after_ms: Number | None = Field(default=None, validation_alias=AliasChoices("expireAfterMs", "expireAfter"))
    expire_at: Number | None = None
    spread_ms: Number | None = None
    delivery: Literal["at-least-once", "at-most-once"] | None = None
    lock_ms: Number | None = None
    opts: dict[str, Any] | None = Field(default=None, description="other options, by the names of the Node library")

    def new_job(self) -> NewJob:
        """The job to add."""
        given = {name: getattr(self, name) for name in NewJobDocument.model_fields}
        for rule in ("remove_on_complete", "remove_on_fail"):
            if isinstance(given[rule], KeepDocument):
                given[rule] = given[rule].model_dump(exclude_none=True)
        return NewJob(**given)


class QueuedJobDocument(NewJobDocument):
    """A job to add to the queue that it names."""

    queue: Text = Field(examples=["mail"])


class AddedDocument(BaseModel):
    """Jobs that were added. `ids`: in the order given; for a deduplicated job, the id of the job that was first."""

    ids: list[str] = Field(examples=[["42"]])
    added: int = Field(examples=[1])
    duplicates: int = Field(description="not added, as their id existed")
    deduplicated: int = Field(description="not added, as their deduplication id was taken")


class JobPatch(Strict):
    """Changes of a job; at least one."""

    data: Any = Field(default=None, description="the new payload, also null", examples=[{"to": "grace@example.org"}])
    priority: Number | Text | None = Field(default=None, description="0 is none, 1 the highest; or a name")
    delay: Number | None = Field(default=None, description="ms from now; of a job that waits or is delayed")


class RetryDocument(Strict):
    """How to retry a job."""

    state: Literal["failed", "completed"] = Field(default="failed", description="the state that the job must be in")
    reset_attempts: bool = Field(default=False, description="whether attempts count from 0 again")


class ChangesDocument(Strict):
    """Which jobs to change, and how. A condition that is null holds for all jobs."""

    action: Literal["retry", "promote", "remove", "move"]
    state: State | None = Field(default=None, description="of the jobs; null: delayed to promote, else failed")
    name: Text | None = Field(default=None, description="name of the jobs")
    text: Text | None = Field(
        default=None, description="in id, name, payload, return value or reason of failure, in any case"
    )
    reason: Text | None = Field(default=None, description="in the reason of failure, in any case", examples=["timeout"])
    since: Number | None = Field(default=None, alias="from", description="when jobs ended, are due, or else were added")
    until: Number | None = Field(default=None, alias="to", description="the same, at the latest")
    reset_attempts: bool = Field(default=False, description="to retry: whether attempts count from 0 again")
    move_to: Text | None = Field(default=None, description="to move: name of another queue of the same dialect")


class StartedDocument(BaseModel):
    """The id of a write that has begun: GET, or DELETE to abort it, `/api/queues/{queue}/writes/{id}`."""

    id: str


class CleanDocument(Strict):
    """Which jobs to remove."""

    state: State = "completed"
    grace_ms: Number = Field(default=0, description="minimum age")
    limit: Most = 1_000


class DrainDocument(Strict):
    """Which waiting jobs to remove."""

    delayed: bool = Field(default=False, description="whether to remove delayed jobs, too")


class OrphansDocument(Strict):
    """How many orphaned jobs to remove."""

    limit: Most = 1_000


class TrimDocument(Strict):
    """Which events to keep: about the last `maxEvents`."""

    max_events: Number


class TrimmedDocument(BaseModel):
    """How many events were removed."""

    events: int


class ReasonDocument(Strict):
    """Why a job is cancelled or fails."""

    reason: Text | None = None


class MoveDocument(Strict):
    """Where a job is moved."""

    to: Text = Field(description="name of another queue of the same dialect", examples=["late"])


class DoneDocument(BaseModel):
    """What a request has changed. `more`: whether the same request would change more jobs."""

    jobs: int = Field(description="number of changed jobs", examples=[1])
    skipped: int = Field(default=0, description="jobs that were in another state, locked or gone meanwhile")
    more: bool = False


class SchedulerPut(Strict):
    """A job scheduler to create or change: `every` or `pattern`."""

    every: Annotated[int, Field(ge=1, le=2**53 - 1)] | Text | None = Field(
        default=None, description="interval, ms, or a duration of ISO 8601", examples=["PT15M"]
    )
    pattern: Text | None = Field(default=None, description="cron pattern of 5 fields, or 6 with seconds first")
    tz: Text | None = Field(default=None, description="time zone of the pattern", examples=["Europe/Berlin"])
    name: Text | None = Field(default=None, description="name of the jobs")
    data: Any = Field(default=None, description="payload of the jobs")
    limit: Number | None = Field(default=None, description="maximum number of jobs")
    offset: Number | Text | None = Field(default=None, description="as `every`; BullMQ only")
    start_date: Number | None = None
    end_date: Number | None = None
    opts: dict[str, Any] | None = Field(default=None, description="options of the jobs, by the names of Node")


class NextDocument(BaseModel):
    """When the next job of a job scheduler is due."""

    next: int


class LimitsPut(Strict):
    """Limits of a queue over all its workers, or of a group of jobs; those that are null, or missing, stay."""

    concurrency: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = None
    max: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = Field(default=None, description="jobs per `durationMs`")
    duration_ms: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = None

"""Public data types of jobs that a queue has, as read and to change, and of flows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from spark_bull.core.model.job_json import json_or_text, opts_of, payload_of
from spark_bull.core.model.jobs import NewJob, Priority


@dataclass(frozen=True)
class FlowJob(NewJob):
    """A job of a flow, to add with BullQueue.add_flow: a NewJob that waits for its children. BullMQ only.

    The job with all jobs below it is added at once, and waits until its children have ended. Its id is a UUID unless
    `job_id` is given. Only the first job of a flow may have a `parent`, and a `deduplication` if it has no children. It
    has the parameters of NewJob, and these:

    Parameters:
      queue: name of the job's queue; default: its parent's queue, and for the first job the BullQueue's.
      on_failure: what becomes of the parent when this job fails. `wait` (default): it waits on. `fail`: it fails.
        `continue`: it starts at once. `ignore`, `remove`: it no longer waits for this job.
      children: the jobs for which this one waits.
    """

    queue: str | None = None
    on_failure: str | None = None
    children: Sequence[FlowJob] = ()


@dataclass(frozen=True)
class AddedFlow:
    """A job of a flow that was added.

    Parameters:
      queue: name of its queue.
      id: id of the job.
      children: the jobs for which it waits, in the order given.
    """

    queue: str
    id: str
    children: tuple[AddedFlow, ...] = ()


@dataclass(frozen=True)
class Dependency:
    """A child of a job, as BullMQ keeps it with the parent.

    Parameters:
      queue: name of the parent's queue.
      id: id of the parent.
      child_queue: name of the child's queue.
      child_id: id of the child.
      state: `unprocessed`, `processed`, `ignored` (failed, which its parent ignores), or `failed` (with its parent).
      value: return value of a processed child, JSON text; reason of the failure of an ignored one; else None.
    """

    queue: str
    id: str
    child_queue: str
    child_id: str
    state: str
    value: str | None = None


@dataclass(frozen=True)
class Job:
    """A job as read from Redis. Times are ms since 1970.

    The properties `data`, `opts`, `progress` and `returnvalue` are parsed JSON, as in a processor. A field that the
    hash lacks is None, or the default of the Node libraries: 0 for attempts, delay and priority.

    Parameters:
      queue: name of the queue.
      id: id of the job.
      state: one of spark_bull.core.model.jobs.STATES; None for a job that is in no state's list.
      name: name of the job.
      data_text: the payload, JSON text as stored in Redis.
      opts_text: the options, JSON text.
      progress_text: the progress last reported, JSON text.
      returnvalue_text: return value of the processor, JSON text.
      failed_reason: error message of the last failed attempt.
      stacktrace: traces of failed attempts, oldest first.
      attempts_made: attempts that have ended.
      attempts_started: attempts that have started; BullMQ only.
      stalled_counter: how often the job has stalled.
      returned_counter: how often a processor has returned the job to its queue, by ReturnedError.
      timestamp: when the job was added.
      processed_on: when its last attempt started.
      finished_on: when it completed or failed.
      delay: ms that the job waits before it may run.
      run_at: when a delayed job is due.
      priority: 1 is the highest, 0 is none.
      processed_by: name of the worker; BullMQ only.
      parent_key: Redis key of the parent job; BullMQ only.
      deduplication_id: deduplication id of the job; BullMQ and Bull 4 only.
      repeat_job_key: key of the job scheduler that made the job.
    """

    queue: str
    id: str
    state: str | None
    name: str | None = None
    data_text: str = "{}"
    opts_text: str = "{}"
    progress_text: str | None = None
    returnvalue_text: str | None = None
    failed_reason: str | None = None
    stacktrace: tuple[str, ...] = ()
    attempts_made: int = 0
    attempts_started: int | None = None
    stalled_counter: int = 0
    returned_counter: int = 0
    timestamp: int | None = None
    processed_on: int | None = None
    finished_on: int | None = None
    delay: int = 0
    run_at: int | None = None
    priority: int = 0
    processed_by: str | None = None
    parent_key: str | None = None
    deduplication_id: str | None = None
    repeat_job_key: str | None = None

    @property
    def data(self) -> Any:
        """The payload. Raises JobDamaged, a ValueError, when it is not JSON."""
        return payload_of(self.id, self.data_text, self.opts_text)

    @property
    def opts(self) -> dict[str, Any]:
        """The options, as the Node library stores them. Raises JobDamaged when they are not a JSON object."""
        return opts_of(self.id, self.opts_text)

    @property
    def progress(self) -> Any:
        """The progress last reported, or None; the text itself when it is not JSON."""
        return json_or_text(self.progress_text)

    @property
    def returnvalue(self) -> Any:
        """The return value of the processor, or None; the text itself when it is not JSON."""
        return json_or_text(self.returnvalue_text)

    def parsed(self, name: str = "data") -> Any:
        """Returns the attribute `data`, `opts`, `progress` or `returnvalue`.

        Parameters:
          name: name of the attribute.

        Returns:
          Its value.

        Raises:
          JobDamaged: when `data` or `opts` can't be parsed.
        """
        return getattr(self, name)


@dataclass(frozen=True)
class FlowNode:
    """A job of a flow, as read from Redis, with the jobs below it.

    Parameters:
      queue: name of its queue; with the prefix of its keys in front if that is another one.
      id: id of the job.
      depth: number of jobs above it; 0: it is the first one.
      job: the job; None if it was removed.
      parent_queue: name of the queue of its parent; None for the first job.
      parent_id: id of its parent; None for the first job.
      dependency: what has become of it for its parent, as `state` of Dependency; None for the first job.
      child_count: number of its children, also of those that were not read.
      children: its children that were read.
    """

    queue: str
    id: str
    depth: int = 0
    job: Job | None = None
    parent_queue: str | None = None
    parent_id: str | None = None
    dependency: str | None = None
    child_count: int = 0
    children: tuple[FlowNode, ...] = ()

    def walk(self) -> Iterator[FlowNode]:
        """Iterates over this job and all below it, each before its children."""
        left = [self]
        while left:
            node = left.pop()
            yield node
            left += reversed(node.children)


@dataclass(frozen=True)
class Change:
    """A change of an existing job, for BullQueue.manage. A field that the action does not use is ignored.

    Parameters:
      id: id of the job.
      action: retry, promote, delay, prioritize, update, remove, fail, complete, move, free or discard-children.
      data: the new payload: anything JSON can hold, or RawJson; None: unchanged. Of `update` (required), `retry`,
        `promote`, `delay`, `prioritize` and `move`.
      delay: ms from now, of `delay`.
      priority: of `prioritize`: a number, 0 is none, or a name.
      lifo: whether the job is the next one; of `retry` and `prioritize`.
      reset_attempts: whether attempts count from 0 again; of `retry`.
      state: the state of a job to `retry`: failed (default), or completed (BullMQ).
      failed_reason: of `fail`.
      returnvalue: of `complete`: anything JSON can hold, or RawJson; None is null.
      to: name of the queue, of `move`.
    """

    id: str
    action: str
    data: Any = None
    delay: int | None = None
    priority: Priority | None = None
    lifo: bool | None = None
    reset_attempts: bool | None = None
    state: str | None = None
    failed_reason: str | None = None
    returnvalue: Any = None
    to: str | None = None


@dataclass(frozen=True)
class Changed:
    """What has become of a change.

    Parameters:
      id: id of the job.
      action: the action.
      outcome: done; missing (there is no such job); locked (a worker has it); wrong_state. Or scheduled: it is the next
        job of a job scheduler; exists: the other queue has a job of this id.
    """

    id: str
    action: str
    outcome: str

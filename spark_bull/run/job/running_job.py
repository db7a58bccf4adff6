"""The job that a processor receives: its fields, and methods that report progress, log rows and change data."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from threading import Lock
from typing import Any, Final

from spark_bull.core.clock import monotonic_s
from spark_bull.core.dialects.base import json_text
from spark_bull.core.dialects.encode.codec import rows_of
from spark_bull.core.errors import JobCancelled, expected
from spark_bull.core.model.job_json import opts_of, payload_of
from spark_bull.core.model.jobs import NewJob
from spark_bull.core.model.outcomes import ClaimedJob, FollowUp, On
from spark_bull.core.queue.dispatch.add import add_child
from spark_bull.core.queue.dispatch.flows import check_bounds, encode_follow_ups
from spark_bull.core.queue.handle.handle import MAX_CHILDREN, QueueHandle
from spark_bull.core.queue.handle.report import add_log, lock_lost, update_data, update_progress
from spark_bull.core.queue.jobs.children import failures_of, values_of
from spark_bull.core.queue.manage.manage import free, remove_unprocessed_children
from spark_bull.core.well_formed import well_formed
from spark_bull.run.job.job_options import Reported, job_options, timeout_of

_UNSET: Any = object()
#: Held to create the lock of a job.
_CREATING: Final = Lock()


def begin_together(jobs: Sequence[RunningJob]) -> None:
    """Sets the start of attempts of jobs of one queue, which have no time limit, to now: see `RunningJob.begin`."""
    if jobs and jobs[0]._begun is not None:
        jobs[0]._begun.update([job.claimed.id for job in jobs])


class RunningJob:
    """A claimed job, as a processor receives it. Times are ms since 1970.

        def processor(job):
            job.update_progress(50)
            return {"sent": send(job.data["to"])}

    The value that the processor returns (anything that JSON can hold) becomes `returnvalue`; an exception fails the
    attempt. Instances are created by a Worker.

    Parameters:
      claimed: the fields of the job.
      handle: its queue.
      token: token of the job's lock.
      lost: ids of the jobs of the queue whose locks were found to be lost; grows while the job runs.
      state: what the worker's `setup` has made for the slot.
      begun: receives the id of the job when its function is called.
      expires_s: when the job expires if it has not started, on the monotonic clock, s; None: never.
    """

    # Defaults on the class, as most jobs keep them: to set them for each job would double the time to make one.
    #: The error that it fails with, if it is cancelled.
    cancellation: JobCancelled | None = None
    #: The follow-ups of this attempt so far. Read by the worker.
    follow_ups: tuple[FollowUp, ...] = ()
    #: When the job expires if it has not started, on the monotonic clock, s; None: never. Read by the worker.
    expires_s: float | None = None
    #: Returns the trace context that jobs added by this one carry: none unless the worker has a tracer.
    _context_of: Callable[[], str] | None = None
    _data: Any = _UNSET
    _text: str | None = None
    _discarded = False
    _deadline: float | None = None
    _extension_s = 0.0
    _reported: Reported | None = None
    _reporting: Lock | None = None

    def __init__(
        self,
        claimed: ClaimedJob,
        handle: QueueHandle,
        token: str = "",
        lost: Collection[str] = (),
        state: Any = None,
        begun: set[str] | None = None,
        expires_s: float | None = None,
    ) -> None:
        self.claimed = claimed
        #: The queue, as the worker accesses it.
        self.handle = handle
        self._begun = begun
        self._token = token
        self._lost = lost
        self._state = state
        if expires_s is not None:
            self.expires_s = expires_s

    def __repr__(self) -> str:
        return f"RunningJob(queue={self.queue!r}, id={self.claimed.id!r}, attempt={self.attempts_made + 1})"

    @property
    def queue(self) -> str:
        """Name of the queue."""
        return self.handle.keys.queue

    @property
    def token(self) -> str:
        """Token of the job's lock. Read by the worker."""
        return self._token

    @property
    def id(self) -> str:
        """Id of the job."""
        return self.claimed.id

    @property
    def name(self) -> str | None:
        """Name of the job; None in dialects without job names."""
        return self.claimed.name

    @property
    def data(self) -> Any:
        """The payload, parsed from JSON. Raises JobDamaged if it is not JSON, and PayloadUnreadable as `data_text`."""
        if self._data is _UNSET:
            self._data = payload_of(self.claimed.id, self.data_text, self.claimed.opts)
        return self._data

    @property
    def data_text(self) -> str:
        """The payload, JSON text. Raises PayloadUnreadable if it is encrypted or stored, and cannot be opened."""
        if self._text is None:
            handle, claimed = self.handle, self.claimed
            self._text = claimed.data if handle.payloads.is_plain else handle.opened("data", claimed.id, claimed.data)
        return self._text

    @property
    def opts(self) -> Mapping[str, Any]:
        """The job's options, as the Node library stores them."""
        return opts_of(self.claimed.id, self.claimed.opts)

    @property
    def timestamp(self) -> int:
        """Time at which the job was added, ms since 1970."""
        return self.claimed.timestamp

    @property
    def attempts_made(self) -> int:
        """Number of attempts that ended before this one."""
        return self.claimed.attempts_made

    @property
    def attempts_started(self) -> int:
        """Number of attempts that have started, including this one; BullMQ only."""
        return self.claimed.attempts_started

    @property
    def priority(self) -> int:
        """Priority of the job: 1 is the highest, 0 means none."""
        return self.claimed.priority

    @property
    def progress(self) -> Any:
        """The last progress reported by this or an earlier attempt, without its checkpoint; a string if not JSON."""
        return self._last_reported.progress

    @property
    def resumed(self) -> Any:
        """The last checkpoint of an earlier attempt, from which this one goes on; None without any."""
        return Reported.parsed(self.claimed.progress).checkpoint

    @property
    def state(self) -> Any:
        """What the worker's `setup` has made, such as a model; None without `setup`. All jobs of a slot share it."""
        return self._state

    @property
    def timeout(self) -> int:
        """Maximum duration of the job by its option `timeout`, ms; 0: none."""
        return timeout_of(self.claimed.opts)

    @property
    def remaining_ms(self) -> int | None:
        """Time until the job's timeout, ms, never negative; None without a timeout."""
        return None if self._deadline is None else max(0, int(1000 * (self._deadline - monotonic_s())))

    @property
    def lock_lost(self) -> bool:
        """Whether the attempt has lost the job's lock: another one may run, and the result of this one is dropped.

        Locks are extended while jobs run. One is lost if Redis cannot be reached, or the process does not run, for
        longer than `lock_ms`, and when the job exceeds its timeout. Sends nothing; is updated every third of `lock_ms`.
        """
        return self.claimed.id in self._lost

    @property
    def parent_key(self) -> str | None:
        """Redis key of the parent job; BullMQ only."""
        return self.claimed.parent_key

    def children_values(self, limit: int = MAX_CHILDREN) -> dict[str, Any]:
        """Reads the return values of this job's children that have completed, as BullMQ's getChildrenValues does.

            def total(job):
                return sum(job.children_values().values())

        Parameters:
          limit: maximum number of values, which are all in memory at once.

        Returns:
          The return values by the keys of the children, such as `bull:mail:7`; a string if one is not JSON.

        Raises:
          OptionError: if there are more values than `limit`.
          DialectError: for a queue of Bull, whose jobs have no children.
          ConnectionLost: if Redis cannot be reached.
        """
        return values_of(self.handle, self.id, limit)

    def children_failures(self, limit: int = MAX_CHILDREN) -> dict[str, str]:
        """Reads why children of this job have failed, as BullMQ's getIgnoredChildrenFailures does.

        These are children with `ignoreDependencyOnFailure` or `continueParentOnFailure`: a child with
        `failParentOnFailure` fails this job without running it, one with `removeDependencyOnFailure` leaves no trace.

        Parameters:
          limit: maximum number of reasons, which are all in memory at once.

        Returns:
          The reasons by the keys of the children.

        Raises:
          OptionError: if there are more reasons than `limit`.
          DialectError: for a queue of Bull, whose jobs have no children.
          ConnectionLost: if Redis cannot be reached.
        """
        return failures_of(self.handle, self.id, limit)

    def add_child(self, job: NewJob, queue: str | None = None, on_failure: str = "wait") -> str:
        """Adds a job as a child of this one, at once. This job cannot complete before its children have ended.

            def processor(job):
                if not job.children_values():
                    job.add_child(NewJob({"part": 1}, job_id=f"part-of-{job.id}"), queue="parts")
                    raise WaitingForChildren
                return job.children_values()

        A later attempt of this job adds the child again, unless the child has a `job_id`.

        Parameters:
          job: the child.
          queue: name of its queue; default: the same queue.
          on_failure: what becomes of this job when the child fails: `wait`, `fail`, `continue`, `ignore` or `remove`.

        Returns:
          The id of the child.

        Raises:
          OptionError: for a value that is wrong, and for a queue of another hash tag in a Redis Cluster.
          DialectError: for a queue of Bull, whose jobs have no children.
          ParentError: if this job was removed, or the child exists and has another parent.
          JobLockLost: if the attempt has ended, or has lost the lock of the job.
          ConnectionLost: if Redis cannot be reached.
        """
        if self.lock_lost:
            raise lock_lost(self.handle, self.id)
        return add_child(self.handle, self.id, job, queue, on_failure, self._context)

    def remove_unprocessed_children(self) -> int:
        """Removes those children of this job that have not ended, and their children; locked ones stay.

        A job that runs after the failure of a child with `continueParentOnFailure` can complete then.

        Returns:
          How many jobs were removed.

        Raises:
          JobMissing: if this job was removed.
          DialectError: for a queue of Bull, whose jobs have no children.
          ConnectionLost: if Redis cannot be reached.
        """
        return remove_unprocessed_children(self.handle, self.id)

    def remove_deduplication_key(self) -> bool:
        """Frees the job's deduplication id while the job runs, so that the next job that has it is added.

        Returns:
          Whether it was freed; False if the job has no such id, or another job has it.

        Raises:
          ConnectionLost: if Redis cannot be reached.
        """
        deduplication_id = job_options(self.claimed.opts).deduplication_id
        return deduplication_id is not None and free(self.handle, deduplication_id, self.claimed.id)

    def update_progress(self, progress: Any) -> None:
        """Stores the job's progress and publishes it as an event.

        Parameters:
          progress: a number, or anything that JSON can hold.

        Raises:
          JobMissing: if the job was removed.
          JobLockLost: if the job has a checkpoint, possibly of a later attempt, and this attempt has lost its lock.
          OptionError: if JSON cannot hold the value.
          ConnectionLost: if Redis cannot be reached.
        """
        with self._one_report():
            reported = Reported.of(progress)
            if reported.checkpoint is None:
                reported = reported._replace(checkpoint=self._last_reported.checkpoint)
            self._report(reported)

    def checkpoint(self, value: Any) -> None:
        """Stores how far the job has come, for a later attempt, which gets the value as `job.resumed`.

            def processor(job):
                for page in range(job.resumed or 0, 100):
                    copy(page)
                    job.checkpoint(page + 1)

        The field `progress` of the job becomes {"progress": the last progress or 0, "checkpoint": value}.

        Parameters:
          value: anything that JSON can hold; None removes the checkpoint.

        Raises:
          JobMissing: if the job was removed.
          JobLockLost: if the job has lost its lock. Another attempt may be running: this one should end.
          OptionError: if JSON cannot hold the value.
          ConnectionLost: if Redis cannot be reached.
        """
        with self._one_report():
            self._report(self._last_reported._replace(checkpoint=value))

    def log(self, row: str) -> int:
        """Appends a row to the job's log.

        Parameters:
          row: the text.

        Returns:
          Number of rows in the log.

        Raises:
          JobMissing: if the job was removed.
          ConnectionLost: if Redis cannot be reached.
        """
        return add_log(self.handle, self.claimed.id, well_formed(str(row)), job_options(self.claimed.opts).log_limit)

    def update_data(self, data: Any) -> None:
        """Replaces the payload, also for later attempts.

        Parameters:
          data: anything that JSON can hold.

        Raises:
          JobMissing: if the job was removed.
          OptionError: if JSON cannot hold the value.
          ConnectionLost: if Redis cannot be reached.
        """
        text = json_text("data", data)
        update_data(self.handle, self.claimed.id, text)
        self._data, self._text = data, text

    def then(self, job: NewJob, queue: str | None = None, on: On = "success") -> None:
        """Adds a job in the step that settles this one: both happen, or neither.

            def processor(job):
                job.then(NewJob({"to": job.data["to"]}), queue="mail")

        If this attempt is retried, delayed or returned, or its outcome is rejected as the lock is lost, the follow-ups
        of the attempt are dropped.

        Parameters:
          job: the job to add.
          queue: name of its queue, which has the prefix and the dialect of this one; default: the same queue.
          on: "success" adds it if this job completes, "failure" if it fails without a further attempt.

        Raises:
          OptionError: for a wrong value, and for a `parent` that is missing or this job itself. Also if this job has
            more than 250 follow-ups, or follow-ups of more than 4,194,304 characters.
          DialectError: for a property that the dialect lacks, and for a queue of another dialect.
          JobLockLost: if the attempt has ended, or has lost the lock of the job.
          ConnectionLost: if Redis cannot be reached. Only the first use of another queue sends something.
        """
        if self.lock_lost:
            raise lock_lost(self.handle, self.id)
        if not isinstance(job, NewJob):
            raise expected("job", 'a NewJob, such as NewJob({"to": "ada"})', job)
        with self._one_report():
            number = len(self.follow_ups)
            added = encode_follow_ups(
                self.handle, rows_of([job], number), [self.id], [queue], [on], number, self._context
            )
            follow_ups = (*self.follow_ups, *added)
            check_bounds(follow_ups)
            self.follow_ups = follow_ups

    def follow(self, follow_ups: Sequence[FollowUp]) -> None:
        """Sets the follow-ups of this attempt. Called by the worker for jobs of a DataFrame.

        Parameters:
          follow_ups: the follow-ups.
        """
        self.follow_ups = tuple(follow_ups)

    @property
    def has_expired(self) -> bool:
        """Whether the job must not start any more. Read by the worker just before it calls a function."""
        return self.expires_s is not None and monotonic_s() >= self.expires_s

    @property
    def extended_s(self) -> float:
        """Time until the timeout that progress extends, s; 0 if it is over, or none extends it. For the worker."""
        return max(0.0, self._deadline - monotonic_s()) if self._extension_s and self._deadline else 0.0

    def begin(self, limit_ms: int, *, extends: bool = False) -> None:
        """Sets the start of the attempt to now. Called by the worker before it calls a function.

        Parameters:
          limit_ms: maximum duration of the attempt, ms; 0: unlimited.
          extends: whether each report of progress begins this time anew.
        """
        if self._begun is not None:
            self._begun.add(self.claimed.id)
        if limit_ms:
            self._deadline = monotonic_s() + limit_ms / 1000
            self._extension_s = limit_ms / 1000 if extends else 0.0

    def trace(self, context_of: Callable[[], str]) -> None:
        """Sets the function that returns the trace context for jobs that this one adds. Called by the worker.

        Parameters:
          context_of: returns the context as jobs carry it; "" for none.
        """
        self._context_of = context_of

    def lose_lock(self) -> None:
        """Records that the attempt has ended, or that the job was claimed again. Called by the worker."""
        self._lost = (self.claimed.id,)

    @property
    def cancelled(self) -> bool:
        """Whether the job was cancelled since it was claimed. A long loop that catches all errors can check it."""
        return self.cancellation is not None

    def discard(self) -> None:
        """Discards the remaining attempts: if this attempt fails, the job fails."""
        self._discarded = True

    @property
    def discarded(self) -> bool:
        """Whether discard() was called."""
        return self._discarded

    @property
    def _context(self) -> str:
        """The trace context that jobs added by this one carry."""
        return "" if self._context_of is None else self._context_of()

    def _one_report(self) -> Lock:
        """The lock that keeps the reports of several threads in order. Few jobs need it."""
        with _CREATING:
            if self._reporting is None:
                self._reporting = Lock()
            return self._reporting

    @property
    def _last_reported(self) -> Reported:
        return Reported.parsed(self.claimed.progress) if self._reported is None else self._reported

    def _report(self, reported: Reported) -> None:
        """Stores the progress; with a checkpoint, only while the lock is held."""
        of_checkpoint = (reported.checkpoint, self._last_reported.checkpoint) != (None, None)
        if of_checkpoint and self.lock_lost:
            raise lock_lost(self.handle, self.id)
        # A lock that this attempt has lost may hold the same token again, for a later attempt in the same slot.
        token = "" if self.lock_lost else self._token
        update_progress(self.handle, self.id, reported.json_text(), lock_token=token, of_checkpoint=of_checkpoint)
        self._reported = reported
        if self._extension_s:
            self._deadline = monotonic_s() + self._extension_s

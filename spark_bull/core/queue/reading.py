"""The methods of BullQueue that read jobs, numbers, events and writes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from threading import Event
from typing import TYPE_CHECKING, Any

from spark_bull.core.error_text import short_errors
from spark_bull.core.errors import OptionError
from spark_bull.core.late import late
from spark_bull.core.queue.adding import OpenQueue
from spark_bull.core.queue.handle.handle import DEFAULT_DEPTH, DEFAULT_JOBS, MAX_CHILDREN, SAMPLE, WINDOW_MS

if TYPE_CHECKING:
    from spark_bull.core.model.queues import JobStats, QueueMetrics, WriteEnd, WriteRecord
    from spark_bull.core.model.read_jobs import Changed, Dependency, FlowNode, Job
    from spark_bull.core.queue.dispatch import write_records, written
    from spark_bull.core.queue.events import event_log, events, waiting
    from spark_bull.core.queue.events.events import QueueEvents
    from spark_bull.core.queue.jobs import children, read
    from spark_bull.core.queue.monitor import activity, find, stats
    from spark_bull.core.tracing.otel import JobMeter
else:
    write_records, written = late("write_records", "written", of="spark_bull.core.queue.dispatch")
    event_log, events, waiting = late("event_log", "events", "waiting", of="spark_bull.core.queue.events")
    children, read = late("children", "read", of="spark_bull.core.queue.jobs")
    activity, find, stats = late("activity", "find", "stats", of="spark_bull.core.queue.monitor")


@short_errors
class Reading(OpenQueue):
    """Reads jobs, numbers, events and writes; changes nothing but the stream of events."""

    _meter: JobMeter | None

    def counts(self) -> dict[str, int]:
        """Counts the jobs of each state.

        Returns:
          The number of jobs by state, for all states that the dialect has.
        """
        return read.counts(self.handle)

    def record_counts(self) -> dict[str, int]:
        """Counts the jobs of each state, and records the numbers as a gauge, as recordJobCountsMetric does.

        Returns:
          The number of jobs by state, as `counts()` does.

        Raises:
          OptionError: for a queue without `meter`.
        """
        if self._meter is None:
            raise OptionError("expected `meter`, such as BullQueue(..., meter=True), got none: nothing can be recorded")
        jobs = read.counts(self.handle)
        states = self.handle.dialect.counted_states(jobs, find.describe(self.handle).version)
        self._meter.counts(self.name, {exported: jobs[state] for state, exported in states.items()})
        return jobs

    def job(self, job_id: str) -> Job | None:
        """Reads one job with its state.

        Parameters:
          job_id: id of the job.

        Returns:
          The job, or None when there is none of this id.
        """
        return read.read_job(self.handle, job_id)

    def counts_by(self, by: str, states: Sequence[str] = ()) -> dict[str, dict[Any, int]]:
        """Counts the jobs of each state by priority or name.

        Prioritized jobs of BullMQ are counted by Redis, as getCountsPerPriority does; other jobs are read one by one.

        Parameters:
          by: "priority" or "name".
          states: names of states, as in `counts()`; default: all.

        Returns:
          The number of jobs by state and by priority (0 is none) or name; states without jobs are left out.

        Raises:
          OptionError: for another value of `by`.
          DialectError: for a state that the dialect lacks.
        """
        return read.counts_by(self.handle, by, states)

    def metrics(self, state: str, start: int = 0, end: int = -1) -> QueueMetrics:
        """Reads how many jobs have completed or failed per minute, as getMetrics does.

        Workers count them if they keep metrics: workers of Node with the option `metrics`, workers of Spark with
        `metrics_minutes`.

        Parameters:
          state: completed or failed.
          start: position of the first minute, from 0, the newest one before the current minute; negative ones count
            from the end.
          end: position of the last minute, included; -1 is the oldest one of all.

        Raises:
          OptionError: for another state.
          DialectError: for a queue of Bull 1 or 2, whose workers keep no metrics.
        """
        return activity.read_metrics(self.handle, state, start, end)

    def stats(self, *, window_ms: int = WINDOW_MS, sample: int = SAMPLE) -> list[JobStats]:
        """Computes waiting and run times, rates and numbers of jobs: one entry for the queue, then one per job name.

        At most `sample` jobs of each state are read, at equal distances, in calls that keep Redis free. Times are of
        finished jobs that are still kept, and numbers by name are estimated from the jobs that were read. The rates of
        the whole queue are from the metrics of workers and the last 10,000 events of BullMQ. Where there are none, and
        for each name, rates are from the jobs that are kept. See the guide on monitoring.

        Parameters:
          window_ms: period, up to now, of the finished jobs whose times count, and of the rates, ms.
          sample: maximum number of jobs that are read of each state.

        Returns:
          The statistics of all jobs, then of each name; names without sampled jobs are missing.

        Raises:
          OptionError: for an argument that is no positive integer.
        """
        return stats.stats(self.handle, window_ms, sample)

    def page(
        self, state: str, start: int = 0, stop: int = -1, *, name: str | None = None, descending: bool = False
    ) -> list[Job]:
        """Reads jobs of a state, in the order in which they come next, or have finished.

        The finished jobs of bull-1 have no order.

        Parameters:
          state: name of the state, as in `counts()`.
          start: position of the first job, from 0; negative ones count from the end.
          stop: position of the last job, included; -1 is the last one of all.
          name: only jobs of this name, among which positions count; the names of all jobs of the state are read.
          descending: whether the order is reversed, with the newest jobs first.

        Raises:
          OptionError: for a state that does not exist.
          DialectError: for a state that the dialect lacks.
        """
        return read.page(self.handle, state, start, stop, name=name, descending=descending)

    def logs(self, job_id: str, start: int = 0, stop: int = -1) -> list[str]:
        """Reads rows of a job's log.

        Parameters:
          job_id: id of the job.
          start: position of the first row, from 0; negative ones count from the end.
          stop: position of the last row, included; -1 is the last one of all.

        Returns:
          The rows, oldest first.
        """
        rows = self.handle.connection.call("LRANGE", self.handle.keys.logs(job_id), start, stop)
        return [row.decode("utf-8", "replace") for row in rows]

    def children_values(self, job_id: str, limit: int = MAX_CHILDREN) -> dict[str, Any]:
        """Reads the return values of a job's children that have completed.

        Parameters:
          job_id: id of the parent.
          limit: maximum number of values, which are all in memory at once.

        Returns:
          The return values by the keys of the children, such as `bull:mail:7`; a string if one is not JSON.

        Raises:
          OptionError: if there are more values than `limit`.
          DialectError: for a queue of Bull, whose jobs have no children.
        """
        return children.values_of(self.handle, job_id, limit)

    def dependencies(self, job_id: str, limit: int = MAX_CHILDREN) -> list[Dependency]:
        """Reads the children of a job, and what has become of them.

        Parameters:
          job_id: id of the parent.
          limit: maximum number of children, which are all in memory at once.

        Returns:
          The children, the unprocessed ones first.

        Raises:
          OptionError: if there are more children than `limit`.
          DialectError: for a queue of Bull, whose jobs have no children.
        """
        found = sum(self.dependency_counts(job_id).values())
        if found > limit:
            raise OptionError(
                f"expected at most {limit:,} children of job {job_id} of queue {self.name}, found {found:,}: raise "
                "`limit`, or read them with `view=dependencies`"
            )
        return list(children.dependencies_of(self.handle, [job_id]))

    def get_flow(self, job_id: str, max_depth: int = DEFAULT_DEPTH, max_jobs: int = DEFAULT_JOBS) -> FlowNode | None:
        """Reads a job with its children, and theirs, as getFlow of BullMQ; level by level, until a bound is reached.

        Parameters:
          job_id: id of the job.
          max_depth: maximum number of levels; 1: only the job itself.
          max_jobs: maximum number of jobs, which are all in memory at once.

        Returns:
          The job, or None when there is none of this id. A job whose `child_count` is larger than the number of its
          `children` has more of them.

        Raises:
          OptionError: for a bound that is wrong.
          DialectError: for a queue of Bull, whose jobs have no children.
        """
        return children.read_flow(self.handle, job_id, max_depth, max_jobs)

    def dependency_counts(self, job_id: str) -> dict[str, int]:
        """Counts the children of a job.

        Parameters:
          job_id: id of the parent.

        Returns:
          The number of children that are `unprocessed`, `processed`, `ignored` and `failed`; see Dependency.

        Raises:
          DialectError: for a queue of Bull, whose jobs have no children.
        """
        self.handle.dialect.require("flows")
        return children.child_counts(self.handle, [job_id])[0]

    def children_failures(self, job_id: str, limit: int = MAX_CHILDREN) -> dict[str, str]:
        """Reads why children of a job have failed whose failures do not fail it, as getIgnoredChildrenFailures does.

        Parameters:
          job_id: id of the parent.
          limit: maximum number of reasons, which are all in memory at once.

        Returns:
          The reasons by the keys of the children.

        Raises:
          OptionError: if there are more reasons than `limit`.
          DialectError: for a queue of Bull, whose jobs have no children.
        """
        return children.failures_of(self.handle, job_id, limit)

    def deduplication_job_id(self, deduplication_id: str) -> str | None:
        """Finds the job that has a deduplication id.

        Parameters:
          deduplication_id: the deduplication id.

        Returns:
          Id of the job, or None when the id is free.

        Raises:
          DialectError: for a queue of Bull 1 or 2.
        """
        self.handle.dialect.require("deduplication")
        job_id = self.handle.connection.call("GET", self.handle.keys.deduplication(deduplication_id))
        return None if job_id is None else job_id.decode("utf-8", "replace")

    def events(
        self, *, start: str | None = None, timeout_s: float | None = None, stop: Event | None = None
    ) -> QueueEvents:
        """Reads the events of the queue as they happen, also events of other producers and workers.

            with queue.events(timeout_s=60) as events:
                for event in events:
                    print(event.event, event.job_id)

        Events of BullMQ are read from its stream, from `start` on, and none is missed while the connection is lost.
        Bull 3 and 4 publish events on channels, Bull 1.1 and 2 some of them, Bull 1.0 none. What is published while the
        connection is lost is missing, and a warning is logged.

        Parameters:
          start: `$` (default): from now on. `0`: all events that Redis keeps, about 10,000. Or the id of an event, or
            ms since 1970, after which to begin. BullMQ only.
          timeout_s: ends the iterator when no event has come for so long, s; default: never.
          stop: ends the iterator within a second of when it is set.

        Returns:
          An iterator over the events, which uses one connection; it is also a context manager. Its `close()` ends it,
          from any thread; its `read(timeout_s)` returns a list of events.

        Raises:
          OptionError: for an argument that is wrong, or `start` in Bull.
          ConnectionLost: when Redis can't be reached for longer than `retry_ms`; go on with the id of the last event as
            `start`.
        """
        return events.QueueEvents([self.handle], start=start, timeout_s=timeout_s, stop=stop)

    def publish(self, event: str, fields: Mapping[str, Any] | None = None, *, max_events: int | None = None) -> str:
        """Adds an event of your own to the events of the queue, as QueueEventsProducer does (BullMQ).

        Parameters:
          event: name of the event; not one of BullMQ's own.
          fields: what it says, by names such as `jobId` or `data`: texts, and other values as JSON text.
          max_events: about how many events the queue keeps from then on; default: its own limit, usually 10,000.

        Returns:
          Id of the event.

        Raises:
          OptionError: for an argument that is wrong.
          DialectError: for a queue of Bull, which has no custom events.
        """
        return event_log.publish(self.handle, event, fields or {}, max_events)

    def trim_events(self, max_events: int) -> int:
        """Removes the oldest events of the queue, as trimEvents does (BullMQ).

        Redis removes whole parts of the stream: about 100 events more than asked for may stay.

        Parameters:
          max_events: about how many events stay; 0: none.

        Returns:
          How many events were removed.

        Raises:
          OptionError: for a wrong number.
          DialectError: for a queue of Bull, which keeps no events.
        """
        return event_log.trim_events(self.handle, max_events)

    def wait(self, job_id: str, timeout_s: float | None = None) -> Any:
        """Waits until a job has completed, and returns its result, as waitUntilFinished does.

        All calls that wait for jobs of a queue share one connection, which reads the events of the queue, and one
        thread. A job that was removed when it ended is found as long as its event is kept (BullMQ).

        Parameters:
          job_id: id of the job.
          timeout_s: maximum time to wait, s; default: unlimited.

        Returns:
          The return value of its processor, parsed.

        Raises:
          JobFailed: when it has failed; has the attribute `reason`.
          JobMissing: when there is no such job, or it is removed meanwhile.
          WaitTimeout: when it has not ended in time.
          OptionError: for a wrong timeout.
          ConnectionLost: when Redis can't be reached for longer than `retry_ms`.
        """
        return waiting.wait_for_job(self.handle, job_id, timeout_s)

    def outcomes(self, write_id: str) -> Iterator[Changed]:
        """Reads what became of each change of a write with mode=manage that has the option `resultPath`.

        Parameters:
          write_id: id of the write, as in `writes()`.

        Returns:
          The outcomes in the order of the write; none after 30 days, or when the file at `resultPath` was written.
        """
        return write_records.read_outcomes(self.handle, write_id)

    def wait_for_write(self, write_id: str, timeout_s: float | None = None) -> WriteEnd:
        """Waits until all jobs that a write of Spark has added to this queue have ended.

        The write is an exactly-once write of jobs without ids of their own, or one with the option `keepIds`.

        Parameters:
          write_id: id of the write, as in `writes()`.
          timeout_s: maximum time to wait, s; default: unlimited.

        Returns:
          How many jobs have completed and failed, and the reasons. A job that was removed when it ended is known as
          long as its event is kept (BullMQ).

        Raises:
          OptionError: for an unknown write, one that does not dispatch jobs, and one whose ids are not known.
          WaitTimeout: when a job has not ended in time.
          ConnectionLost: when Redis can't be reached for longer than `retry_ms`.
        """
        return written.end_of_write(self.handle, write_id, math.inf if timeout_s is None else timeout_s)

    def writes(self, limit: int | None = None) -> list[WriteRecord]:
        """Reads the records of the writes of the last 30 days.

        Parameters:
          limit: maximum number of records, of the newest writes; None: all.

        Returns:
          The records, the oldest first, unfinished ones last.
        """
        return [*islice(write_records.records(self.handle), limit)][::-1]

"""BullQueue: one queue from plain Python, no Spark needed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from threading import Event
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from spark_bull.core.dialects.base import DEFAULT_NAME, json_text
from spark_bull.core.dialects.encode.chunks import ChunkBuilder
from spark_bull.core.dialects.encode.codec import carrying, check_defaults, data_text, defaults_of, encode, rows_of
from spark_bull.core.dialects.encode.flows import Flows
from spark_bull.core.dialects.terms import SPREAD_SEED
from spark_bull.core.errors import OptionError, did_you_mean
from spark_bull.core.model.jobs import (
    Added,
    AddedFlow,
    Change,
    Changed,
    Dependency,
    FlowJob,
    FlowNode,
    Job,
    JobStats,
    NewJob,
    Priority,
    QueueLimits,
    QueueMetrics,
    RawJson,
    Scheduler,
    WriteRecord,
)
from spark_bull.core.model.limits import Group
from spark_bull.core.options.arguments import JOB_TEXTS, JobProperties, QueueArguments, listing, with_options
from spark_bull.core.options.parse import parse_arguments
from spark_bull.core.options.table import QueueOptions
from spark_bull.core.queue.dispatch.add import add_chunk, sum_of
from spark_bull.core.queue.dispatch.flows import add_flow_chunk, added_flows, check_reply, flow_chunks, levels_of
from spark_bull.core.queue.dispatch.kept import kept
from spark_bull.core.queue.dispatch.parents import check_queues, rejection
from spark_bull.core.queue.dispatch.writes import read_outcomes, records, recover
from spark_bull.core.queue.events.event_log import publish, trim_events
from spark_bull.core.queue.events.events import QueueEvents
from spark_bull.core.queue.events.waiting import wait_for_job
from spark_bull.core.queue.handle import report
from spark_bull.core.queue.handle.admission import close_intake, is_intake_open, length_limit_of, open_intake
from spark_bull.core.queue.handle.handle import QueueHandle, open_handle
from spark_bull.core.queue.handle.replication import check_replicas, replica_terms_of, wait_for_replicas
from spark_bull.core.queue.jobs.children import (
    DEFAULT_DEPTH,
    DEFAULT_JOBS,
    MAX_CHILDREN,
    dependency_counts,
    failures_of,
    read_dependencies,
    read_flow,
    values_of,
)
from spark_bull.core.queue.jobs.read import counts, counts_by, logs, page, read_job
from spark_bull.core.queue.manage import limits, manage
from spark_bull.core.queue.manage.cancel import request_cancel, request_cancel_all
from spark_bull.core.queue.manage.changes import change_job, change_jobs
from spark_bull.core.queue.manage.leftovers import SWEEP_AFTER_MS, Swept, remove_all_orphans, sweep
from spark_bull.core.queue.manage.manage import free, holder_of, remove_child_dependency, remove_unprocessed_children
from spark_bull.core.queue.monitor.activity import read_metrics
from spark_bull.core.queue.monitor.find import describe
from spark_bull.core.queue.monitor.stats import SAMPLE, WINDOW_MS, stats
from spark_bull.core.queue.schedule import schedulers
from spark_bull.core.short_errors import short_errors
from spark_bull.core.tracing.tracer import MeterSource, TracerSource, meter_of, spans_of

if TYPE_CHECKING:
    from typing_extensions import Unpack


@short_errors
@with_options(QueueArguments, QueueOptions)
class BullQueue:
    """A queue of any dialect, from plain Python.

        queue = BullQueue("mail", url="redis://localhost:6379")
        queue.add({"to": "ada@example.org"}, delay=60_000)

    The connection opens with the first call. Every method raises ConnectionLost when Redis can't be reached for longer
    than `retry_ms`, or refuses the call.

    Parameters:
      queue: name of the queue.
      tracer: makes a span for each call that adds jobs, whose context the jobs carry, as with `telemetry` in BullMQ:
        True for the global tracer, a tracer of OpenTelemetry, or a function that returns one. BullMQ only.
      meter: where `record_counts` records: True for the global MeterProvider, a MeterProvider of OpenTelemetry, or a
        function that returns one.
      options: options of the connection, limits of calls and of the queue, and defaults of jobs; see QueueArguments.

    Raises:
      OptionError: for an argument that is wrong, unknown, or does not go with another one.
      DialectError: when the queue in Redis has another dialect than `protocol`.
      ConnectionLost: when Redis can't be reached.
    """

    def __init__(
        self,
        queue: str,
        *,
        tracer: TracerSource = None,
        meter: MeterSource = None,
        **options: Unpack[QueueArguments],
    ) -> None:
        self._options = parse_arguments(options, QueueOptions)
        self.handle: QueueHandle = open_handle(self._options, queue)
        self._defaults = defaults_of(self._options)
        self._limit = length_limit_of(self._options)
        self._replica_terms = replica_terms_of(self._options)
        self._spans = spans_of(tracer)
        self._meter = meter_of(meter)
        check_defaults(self.handle.dialect, self._defaults | carrying("{}" if self._spans else ""))

    @property
    def name(self) -> str:
        """Name of the queue."""
        return self.handle.keys.queue

    @property
    def protocol(self) -> str:
        """Dialect in use: bull-1, bull or bullmq."""
        return self.handle.dialect.name

    def __repr__(self) -> str:
        where = self.handle.connection.settings.where
        return f"BullQueue({self.name!r}, protocol={self.protocol!r}, url={where!r})"

    def __enter__(self) -> BullQueue:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes this process' connections that are not in use; the next call opens a new one."""
        self.handle.connection.close()

    # dispatch

    @listing(JobProperties, JOB_TEXTS)
    def add(self, data: Any, **properties: Unpack[JobProperties]) -> str:
        """Adds one job. An argument that is None has the queue's default, if there is one.

        Parameters:
          data: the payload: anything JSON can hold, or RawJson.
          properties: the properties of NewJob.

        Returns:
          The job's id; the id of the job that was there first, if the job is deduplicated; "" if it is dropped,
          as the queue is full.

        Raises:
          OptionError: for a value that is wrong or unknown; nothing was added.
          IntakeClosed: when the queue accepts no jobs.
          QueueFull: when the queue has no room for it, by `max_length`.
          NotReplicated: when too few replicas have it, by `replicas`; it was added, unless `was_written` is false.
          DialectError: for a property that the queue's dialect lacks.
          ParentError: when the parent is missing, or the job has another one; nothing was added.
        """
        for given in properties:
            if given not in JobProperties.__annotations__:
                known = JobProperties.__annotations__
                raise OptionError(f"unknown property `{given}` of a job{did_you_mean(given, known)}")
        job = NewJob(data, **properties)
        if self._spans is None:
            return self._added([job]).ids[0]
        name = job.name or self._defaults.get("name", DEFAULT_NAME)
        with self._spans.adding(self.name, "add", f"{self.name}.{name}") as (span, context):
            span.set({"bullmq.job.name": name})
            (added_id,) = self._added([job], context).ids
            span.set({"bullmq.job.id": added_id})
            return added_id

    def add_many(self, jobs: Iterable[NewJob]) -> Added:
        """Adds jobs in their order, in chunks of `chunk_size`.

        Parameters:
          jobs: any number of jobs; at most 10,000 are in memory at once.

        Returns:
          Their ids, and how many of them were added.

        Raises:
          OptionError: for a job that is wrong; jobs before it may have been added.
          IntakeClosed: when the queue accepts no jobs; jobs may have been added before.
          QueueFull: when the queue has no room for the next chunk, by `max_length`; jobs before it were added.
          NotReplicated: when too few replicas have the jobs, by `replicas`; they were added, unless `was_written` is
            false.
          DialectError: for a property that the queue's dialect lacks.
          ParentError: when the parent of a job is missing, or the job has another one; all other jobs were added.
        """
        if self._spans is None:
            return self._added(jobs)
        with self._spans.adding(self.name, "addBulk", self.name) as (span, context):
            added = self._added(jobs, context)
            span.set({"bullmq.job.bulk.count": len(added.ids)})
            return added

    def add_flow(self, flow: FlowJob) -> AddedFlow:
        """Adds a job and the jobs for which it waits, all of them or none. BullMQ only.

            queue.add_flow(FlowJob({"book": 7}, "bind", children=[FlowJob({"page": n}, queue="pages") for n in (1, 2)]))

        Parameters:
          flow: the job, with its children; at most 1,000 jobs. The queue's defaults apply to all of them.

        Returns:
          The queues and ids of the jobs.

        Raises:
          OptionError: for a job that is wrong, or a queue with `max_length`; nothing was added.
          IntakeClosed: when the queue accepts no jobs; nothing was added.
          DialectError: for a queue of another dialect.
          ParentError: when a job exists and has another parent, or the parent of the first job is missing; nothing was
            added.
        """
        return self.add_flows([flow])[0]

    def add_flows(self, flows: Iterable[FlowJob]) -> list[AddedFlow]:
        """Adds flows in chunks of about `chunk_size` jobs, each flow whole or not at all. BullMQ only.

        Parameters:
          flows: any number of flows, as for `add_flow`; at most 1,000 are in memory at once.

        Returns:
          The queues and ids of the jobs, in the order of the flows.

        Raises:
          OptionError: for a job that is wrong; flows before it may have been added. For a queue with `max_length`.
          IntakeClosed: when the queue accepts no jobs; flows may have been added before.
          DialectError: for a queue of another dialect.
          ParentError: as with `add_flow`; other flows may have been added.
        """
        if self._spans is None:
            return list(self._add_flows(flows, ""))
        with self._spans.adding(self.name, "addFlow", self.name) as (_, context):
            return list(self._add_flows(flows, context))

    def _add_flows(self, flows: Iterable[FlowJob], context: str) -> Iterator[AddedFlow]:
        if self._limit is not None:
            raise OptionError("expected a queue without `max_length`, as a flow is added whole: leave it out")
        primaries = self._check_replicas()
        defaults = carrying(context) | self._defaults | {SPREAD_SEED: uuid4().hex}
        remaining, first_row, source = iter(flows), 0, uuid4().hex
        while batch := list(islice(remaining, 1_000)):
            levels = levels_of(self.name, batch)
            encoded = Flows(self.handle.dialect, levels, defaults, range(first_row, first_row + len(batch)))
            first_row += len(batch)
            for chunk in flow_chunks(self.handle, encoded, *self._chunk_limits, source):
                reply = add_flow_chunk(self.handle, self.handle.sender, uuid4().hex, chunk)
                check_reply(encoded, reply)
            yield from added_flows(levels, encoded.ids)
        if primaries:
            self._wait_for_replicas(primaries)

    @property
    def _chunk_limits(self) -> tuple[int, int]:
        """The maximum number of jobs of a chunk, and its maximum bytes of payload."""
        return self._options.chunk_size, self._options.chunk_bytes

    def _check_replicas(self) -> frozenset[str]:
        """Returns the primaries of Redis if replicas must have what is added. Raises NotReplicated."""
        terms = self._replica_terms
        return check_replicas(self.handle.connection, terms, self.handle.keys.queue) if terms else frozenset()

    def _wait_for_replicas(self, primaries: frozenset[str]) -> int | None:
        terms = self._replica_terms
        return wait_for_replicas(self.handle.connection, self.handle.keys, terms, primaries) if terms else None

    def _added(self, jobs: Iterable[NewJob], context: str = "") -> Added:
        primaries = self._check_replicas()
        added = sum_of(self._add(jobs, carrying(context) | self._defaults | {SPREAD_SEED: uuid4().hex}))
        if primaries:
            added = replace(added, replicas=self._wait_for_replicas(primaries))
        for row, reason in added.rejected.items():
            raise rejection(row, reason)
        return added

    def _add(self, jobs: Iterable[NewJob], defaults: Mapping[str, Any]) -> Iterator[Added]:
        builder = ChunkBuilder(*self._chunk_limits)
        remaining, first_row, sent, source = iter(jobs), 0, 0, uuid4().hex
        while batch := list(islice(remaining, 10_000)):
            numbers = range(first_row, first_row + len(batch))
            columns = encode(self.handle.dialect, rows_of(batch, first_row), defaults, numbers)
            check_queues(self.handle, columns)
            first_row += len(batch)
            columns = kept(self.handle, columns, source, numbers)
            for rows, packed in (*builder.add(columns), *builder.flush()):
                added = add_chunk(
                    self.handle, self.handle.sender, uuid4().hex, rows, packed, want_ids=True, limit=self._limit
                )
                yield replace(added, rejected={sent + row: reason for row, reason in added.rejected.items()})
                sent += rows

    # inspect

    def counts(self) -> dict[str, int]:
        """Counts the jobs of each state.

        Returns:
          The number of jobs by state, for all states that the dialect has.
        """
        return counts(self.handle)

    def record_counts(self) -> dict[str, int]:
        """Counts the jobs of each state, and records the numbers as a gauge, as recordJobCountsMetric does.

        Returns:
          The number of jobs by state, as `counts()` does.

        Raises:
          OptionError: for a queue without `meter`.
        """
        if self._meter is None:
            raise OptionError("expected `meter`, such as BullQueue(..., meter=True), got none: nothing can be recorded")
        jobs = counts(self.handle)
        states = self.handle.dialect.counted_states(jobs, describe(self.handle).version)
        self._meter.counts(self.name, {exported: jobs[state] for state, exported in states.items()})
        return jobs

    def job(self, job_id: str) -> Job | None:
        """Reads one job with its state.

        Parameters:
          job_id: id of the job.

        Returns:
          The job, or None when there is none of this id.
        """
        return read_job(self.handle, job_id)

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
        return counts_by(self.handle, by, states)

    def metrics(self, state: str, start: int = 0, end: int = -1) -> QueueMetrics:
        """Reads how many jobs have completed or failed per minute, as getMetrics does.

        Workers count them if they keep metrics: workers of Node with the option `metrics`, workers of Spark with
        `metrics_minutes`.

        Parameters:
          state: completed or failed.
          start: position of the first minute, from 0, the newest one before the current minute; negative ones count
            from the end.
          end: position of the last minute, included; -1 is the oldest one of all.

        Returns:
          The counters.

        Raises:
          OptionError: for another state.
          DialectError: for a queue of Bull 1 or 2, whose workers keep no metrics.
        """
        return read_metrics(self.handle, state, start, end)

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
        return stats(self.handle, window_ms, sample)

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

        Returns:
          The jobs.

        Raises:
          OptionError: for a state that does not exist.
          DialectError: for a state that the dialect lacks.
        """
        return page(self.handle, state, start, stop, name=name, descending=descending)

    def logs(self, job_id: str, start: int = 0, stop: int = -1) -> list[str]:
        """Reads rows of a job's log.

        Parameters:
          job_id: id of the job.
          start: position of the first row, from 0; negative ones count from the end.
          stop: position of the last row, included; -1 is the last one of all.

        Returns:
          The rows, oldest first.
        """
        return logs(self.handle, job_id, start, stop)

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
        return values_of(self.handle, job_id, limit)

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
        return read_dependencies(self.handle, job_id, limit)

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
        return read_flow(self.handle, job_id, max_depth, max_jobs)

    def dependency_counts(self, job_id: str) -> dict[str, int]:
        """Counts the children of a job.

        Parameters:
          job_id: id of the parent.

        Returns:
          The number of children that are `unprocessed`, `processed`, `ignored` and `failed`; see Dependency.

        Raises:
          DialectError: for a queue of Bull, whose jobs have no children.
        """
        return dependency_counts(self.handle, job_id)

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
        return failures_of(self.handle, job_id, limit)

    def deduplication_job_id(self, deduplication_id: str) -> str | None:
        """Finds the job that has a deduplication id.

        Parameters:
          deduplication_id: the deduplication id.

        Returns:
          Id of the job, or None when the id is free.

        Raises:
          DialectError: for a queue of Bull 1 or 2.
        """
        return holder_of(self.handle, deduplication_id)

    # events

    def events(
        self, *, start: str | None = None, timeout_s: float | None = None, stop: Event | None = None
    ) -> QueueEvents:
        """Reads the events of the queue as they happen, also events of other producers and workers.

            with queue.events(timeout_s=60) as events:
                for event in events:
                    print(event.event, event.job_id)

        Events of BullMQ are read from its stream, from `start` on, and none is missed while the connection is lost.
        Bull 3 and 4 publish events on channels, and Bull 1.1 and 2 some of them: what is published while the connection
        is lost is missing, and a warning is logged. Bull 1.0 publishes none.

        Parameters:
          start: BullMQ only: `$`, from now on, which is the default; `0`, all events that Redis keeps, about 10,000; or
            the id of an event, after which to begin: also ms since 1970.
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
        return QueueEvents([self.handle], start=start, timeout_s=timeout_s, stop=stop)

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
        return publish(self.handle, event, fields or {}, max_events)

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
        return trim_events(self.handle, max_events)

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
        return wait_for_job(self.handle, job_id, timeout_s)

    # manage

    def remove_deduplication_key(self, deduplication_id: str, job_id: str | None = None) -> bool:
        """Frees a deduplication id, so that the next job that has it is added.

        Parameters:
          deduplication_id: the deduplication id.
          job_id: frees it only if this job has it.

        Returns:
          Whether it was freed.

        Raises:
          DialectError: for a queue of Bull 1 or 2.
        """
        return free(self.handle, deduplication_id, job_id)

    def pause(self) -> None:
        """Keeps workers from claiming more jobs; active jobs continue."""
        manage.pause(self.handle)

    def resume(self) -> None:
        """Lets workers claim jobs again."""
        manage.resume(self.handle)

    def is_paused(self) -> bool:
        """Returns whether the queue is paused for all workers.

        Returns:
          True if it is paused.
        """
        return manage.is_paused(self.handle)

    def close_intake(self) -> None:
        """Lets the queue accept no more jobs and schedulers: writes of Spark and this class raise IntakeClosed.

        Workers go on.

        Producers of Node do not know of it, and still add jobs. Jobs that workers add, follow-up jobs and the next jobs
        of schedulers, and the jobs of registered writes are added. It is no pause, which stops workers, and
        not `close()`, which closes connections. It lasts until `open_intake`, even if the queue is obliterated.
        """
        close_intake(self.handle)

    def open_intake(self) -> None:
        """Lets the queue accept jobs again."""
        open_intake(self.handle)

    def is_intake_open(self) -> bool:
        """Returns whether the queue accepts jobs.

        Returns:
          False from `close_intake` to `open_intake`.
        """
        return is_intake_open(self.handle)

    def set_limits(
        self,
        *,
        concurrency: int | None = None,
        max: int | None = None,
        duration_ms: int | None = None,
    ) -> None:
        """Sets limits of the queue over all its workers, also workers of Node (BullMQ). Other limits stay.

        They are the limits of BullMQ's setGlobalConcurrency and setGlobalRateLimit. Idle workers are woken.

        Parameters:
          concurrency: maximum number of active jobs.
          max: maximum number of jobs that start in `duration_ms`.
          duration_ms: the period of `max`, ms.

        Raises:
          OptionError: for an argument that is wrong, or `max` without `duration_ms`.
          DialectError: for a queue of Bull, which has no limits of its own.
        """
        limits.set_limits(self.handle, concurrency=concurrency, max=max, duration_ms=duration_ms)

    def remove_limits(self, *, concurrency: bool = True, rate: bool = True) -> None:
        """Removes limits of the queue, as removeGlobalConcurrency and removeGlobalRateLimit do (BullMQ).

        Parameters:
          concurrency: whether to remove the limit of active jobs.
          rate: whether to remove the rate limit, `max` and `duration_ms`.

        Raises:
          DialectError: for a queue of Bull.
        """
        limits.remove_limits(self.handle, concurrency=concurrency, rate=rate)

    def limits(self) -> QueueLimits:
        """Reads the limits of the queue over all its workers (BullMQ).

        Returns:
          The limits.

        Raises:
          DialectError: for a queue of Bull.
        """
        return limits.limits(self.handle)

    def is_maxed(self) -> bool:
        """Returns whether as many jobs are active as the limit `concurrency` of the queue allows, as isMaxed (BullMQ).

        Returns:
          False also if there is no such limit.

        Raises:
          DialectError: for a queue of Bull.
        """
        return self.limits().is_maxed

    def rate_limit(self, duration_ms: int) -> None:
        """Keeps workers from starting jobs for a time, as BullMQ's rateLimit does; active jobs continue.

        All workers of Spark obey; workers of Node only if the queue, or the worker, has a rate limit.

        Parameters:
          duration_ms: for how long, ms.

        Raises:
          OptionError: for a duration that is no positive integer.
          DialectError: for a queue of Bull.
        """
        limits.rate_limit(self.handle, duration_ms)

    def remove_rate_limit(self) -> None:
        """Ends what `rate_limit` has begun, and the current period of a rate limit, as removeRateLimitKey (BullMQ).

        A waiting worker of Spark looks again within 10 s.

        Raises:
          DialectError: for a queue of Bull.
        """
        limits.remove_rate_limit(self.handle)

    def set_group_limit(
        self,
        group: str,
        *,
        concurrency: int | None = None,
        max: int | None = None,
        duration_ms: int | None = None,
    ) -> None:
        """Sets limits of one group of jobs, for the workers of Spark that have `group`. Its other limits stay.

        Parameters:
          group: name of the group.
          concurrency: maximum number of its jobs that run at the same time.
          max: maximum number of its jobs that start in `duration_ms`.
          duration_ms: the period of `max`, ms.

        Raises:
          OptionError: for an argument that is wrong, `max` without `duration_ms`, and a queue without groups.
        """
        limits.set_group_limit(self.handle, group, concurrency=concurrency, max=max, duration_ms=duration_ms)

    def remove_group_limit(self, group: str, *, concurrency: bool = True, rate: bool = True) -> None:
        """Removes limits of one group of jobs: then the workers' limits hold.

        Parameters:
          group: name of the group.
          concurrency: whether to remove the limit of running jobs.
          rate: whether to remove the rate limit, `max` and `duration_ms`.

        Raises:
          OptionError: for a queue without groups.
        """
        limits.remove_group_limit(self.handle, group, concurrency=concurrency, rate=rate)

    def pause_group(self, group: str) -> None:
        """Keeps workers of Spark from starting jobs of a group, until it is resumed; its active jobs continue.

        Parameters:
          group: name of the group.

        Raises:
          OptionError: for a queue without groups.
        """
        limits.pause_group(self.handle, group)

    def resume_group(self, group: str) -> None:
        """Lets workers start jobs of a group again.

        Parameters:
          group: name of the group.

        Raises:
          OptionError: for a queue without groups.
        """
        limits.resume_group(self.handle, group)

    def groups(self) -> Iterator[Group]:
        """Reads the groups of jobs that workers of Spark have met, 25 per call.

        Returns:
          Those with waiting or active jobs, or with limits, a pause or a rest of their own.
        """
        return limits.read_groups(self.handle)

    def manage(self, changes: Iterable[Change]) -> Iterator[Changed]:
        """Changes many jobs, `chunk_size` per script call; write a DataFrame with mode=manage to do so exactly once.

        Parameters:
          changes: the changes, which are made in this order while the result is read.

        Returns:
          What has become of each change, in order. Jobs that do not exist, are locked by a worker or are in another
          state are left alone.

        Raises:
          OptionError: for a change with a wrong or missing value.
          DialectError: for an action that the dialect lacks.
        """
        return change_jobs(self.handle, changes, self._options.chunk_size, self._options.chunk_bytes)

    def change_delay(self, job_id: str, delay_ms: int) -> None:
        """Delays a job that waits, or changes when a delayed job runs.

        `promote` moves it back to the waiting ones.

        Parameters:
          job_id: id of the job.
          delay_ms: ms from now.

        Raises:
          OptionError: for a wrong delay.
          JobMissing: when there is no such job.
          WrongState: when it neither waits nor is delayed.
        """
        change_job(self.handle, Change(job_id, "delay", delay=delay_ms))

    def change_priority(self, job_id: str, priority: Priority, *, lifo: bool = False) -> None:
        """Changes the priority of a job; one that waits takes its new place.

        Parameters:
          job_id: id of the job.
          priority: a number, of which 1 is the highest and 0 is none, or a name: critical, high, medium, normal, low.
          lifo: whether it is the first one of its priority.

        Raises:
          OptionError: for a wrong priority.
          JobMissing: when there is no such job.
          DialectError: for a queue of Bull 1 or 2, whose jobs have no priority.
        """
        change_job(self.handle, Change(job_id, "prioritize", priority=priority, lifo=lifo))

    def update_data(self, job_id: str, data: Any) -> None:
        """Replaces the payload of a job.

        Parameters:
          job_id: id of the job.
          data: the payload: anything JSON can hold, or RawJson.

        Raises:
          JobMissing: when there is no such job.
        """
        change_job(self.handle, Change(job_id, "update", data=RawJson("null") if data is None else data))

    def update_progress(self, job_id: str, progress: Any) -> None:
        """Stores the progress of a job and publishes it as an event, as updateJobProgress of BullMQ.

        Parameters:
          job_id: id of the job.
          progress: a number, or anything that JSON can hold.

        Raises:
          JobMissing: when there is no such job.
          WrongState: when it has a checkpoint, which is a part of its progress.
          OptionError: for a value that JSON can't hold.
        """
        report.set_progress(self.handle, job_id, json_text("progress", progress))

    def log(self, job_id: str, row: str, keep: int = 0) -> int:
        """Adds a row to the log of a job, as addJobLog of BullMQ; `logs` reads them.

        Parameters:
          job_id: id of the job.
          row: the row.
          keep: number of last rows that stay; 0: all.

        Returns:
          The number of rows.

        Raises:
          JobMissing: when there is no such job.
        """
        return report.add_log(self.handle, job_id, row, keep)

    def clear_logs(self, job_id: str, keep: int = 0) -> None:
        """Removes rows of the log of a job, as clearLogs of BullMQ.

        Parameters:
          job_id: id of the job.
          keep: number of last rows that stay; 0: none.

        Raises:
          OptionError: for a wrong number.
          JobMissing: when there is no such job.
        """
        report.clear_log(self.handle, job_id, keep)

    def fail(self, job_id: str, reason: str) -> None:
        """Fails a job that waits or is delayed, as if a worker had claimed it, without a further attempt.

        Parameters:
          job_id: id of the job.
          reason: its `failedReason`.

        Raises:
          JobMissing: when there is no such job.
          JobLocked: when it is locked by a worker.
          WrongState: when it has finished, waits for children, or is the next job of a job scheduler.
        """
        change_job(self.handle, Change(job_id, "fail", failed_reason=reason))

    def complete(self, job_id: str, returnvalue: Any = None) -> None:
        """Completes a job that waits or is delayed, as if a worker had processed it.

        Parameters:
          job_id: id of the job.
          returnvalue: its result: anything JSON can hold, or RawJson.

        Raises:
          JobMissing: when there is no such job.
          JobLocked: when it is locked by a worker.
          WrongState: when it has finished, has unfinished or failed children, or is the next job of a job scheduler.
        """
        change_job(self.handle, Change(job_id, "complete", returnvalue=returnvalue))

    def move(self, job_id: str, to: str) -> None:
        """Moves a job to another queue, where it is a new one with the same name, payload and options.

        It keeps its id, unless that is a number. Attempts, results, logs and the deduplication id are not kept.

        Parameters:
          job_id: id of the job.
          to: name of the other queue, of the same dialect.

        Raises:
          OptionError: for a queue that no script can reach together with this one.
          DialectError: for a queue of another dialect.
          JobMissing: when there is no such job.
          JobLocked: when it is locked by a worker.
          WrongState: when the other queue has a job of this id; when it has a parent or children, or is the next job
            of a job scheduler.
        """
        change_job(self.handle, Change(job_id, "move", to=to))

    def outcomes(self, write_id: str) -> Iterator[Changed]:
        """Reads what became of each change of a write with mode=manage that has the option `resultPath`.

        Parameters:
          write_id: id of the write, as in `writes()`.

        Returns:
          The outcomes in the order of the write; none after 30 days, or when the file at `resultPath` was written.
        """
        return read_outcomes(self.handle, write_id)

    def retry(self, job_id: str, state: str = "failed", *, reset_attempts: bool = False) -> None:
        """Moves a finished job back to the waiting ones.

        Parameters:
          job_id: id of the job.
          state: the state of the job: failed, or (BullMQ) completed.
          reset_attempts: whether its attempts count from 0 again.

        Raises:
          JobMissing: when there is no such job.
          JobLocked: when it is locked by a worker.
          WrongState: when it is in another state.
          DialectError: for a state from which the dialect has no retry.
        """
        manage.retry(self.handle, job_id, state, reset_attempts=reset_attempts)

    def promote(self, job_id: str) -> None:
        """Moves a delayed job to the waiting ones.

        Parameters:
          job_id: id of the job.

        Raises:
          JobMissing: when there is no such job.
          WrongState: when it is not delayed.
        """
        manage.promote(self.handle, job_id)

    def cancel(self, job_id: str, reason: str | None = None) -> None:
        """Asks the Spark worker that processes a job to end it: the job fails without a further attempt.

        The worker reads the request within a second. A job that ends before that keeps its outcome. The job fails with
        the reason `cancelled`, or `cancelled: <reason>`.

        Parameters:
          job_id: id of the job.
          reason: why it is cancelled.

        Raises:
          JobMissing: when there is no such job.
          WrongState: when it is not active, or not held by a Worker with engine loop: jobs of Node workers and of the
            engine stream can't be cancelled.
        """
        request_cancel(self.handle, job_id, reason)

    def cancel_all(self, reason: str | None = None) -> int:
        """Asks the Spark workers of the queue to end all jobs that they process now, as `cancel` does for one.

        Jobs of Node workers and of the engine stream go on. Workers claim further jobs, unless the queue is paused.

        Parameters:
          reason: why they are cancelled.

        Returns:
          How many jobs are to be cancelled; those that end before keep their outcomes.

        Raises:
          OptionError: for a reason that is no text.
        """
        return request_cancel_all(self.handle, reason)

    def remove(self, job_id: str, *, with_children: bool = True) -> None:
        """Removes a job and its logs. A parent (BullMQ) that waited for this job alone starts.

        Parameters:
          job_id: id of the job.
          with_children: whether to remove its children (BullMQ), too.

        Raises:
          JobMissing: when there is no such job.
          JobLocked: when it or one of its children is locked by a worker.
          WrongState: when it is the next job of a job scheduler.
        """
        manage.remove(self.handle, job_id, with_children=with_children, chunk_size=self._options.chunk_size)

    def remove_child_dependency(self, job_id: str) -> bool:
        """Removes a job from the children of its parent, which starts if it waited for this job alone (BullMQ).

        Parameters:
          job_id: id of the child.

        Returns:
          Whether it was an unfinished child.

        Raises:
          JobMissing: when there is no such job, or its parent is gone.
          DialectError: for a queue of Bull.
        """
        return remove_child_dependency(self.handle, job_id)

    def remove_unprocessed_children(self, job_id: str) -> int:
        """Removes those children of a job that have not ended, and their children (BullMQ).

        The job starts if it waited for these alone. Locked jobs, which are usually active, stay.

        Parameters:
          job_id: id of the parent.

        Returns:
          How many jobs were removed.

        Raises:
          JobMissing: when there is no such job.
          DialectError: for a queue of Bull.
        """
        return remove_unprocessed_children(self.handle, job_id, chunk_size=self._options.chunk_size)

    def clean(self, grace_ms: int = 0, limit: int = 0, state: str = "completed") -> list[str]:
        """Removes old jobs of a state.

        Age counts from when a job ended, else started, else was added; in bull-1, and for prioritized jobs of BullMQ,
        always from when it was added. Locked jobs and the next jobs of job schedulers stay.

        Parameters:
          grace_ms: minimum age of the jobs, ms.
          limit: maximum number of jobs; 0: all.
          state: name of the state, as in `counts()`.

        Returns:
          Ids of the removed jobs, as Node's `clean` does. They take about 100 bytes of memory each: clean millions of
          jobs in several calls with a `limit`.

        Raises:
          OptionError: for an argument that is wrong.
          DialectError: for a state that the dialect lacks, or that can't be cleaned.
        """
        return manage.clean(self.handle, grace_ms, limit, state)

    def drain(self, *, delayed: bool = False) -> int:
        """Removes all jobs that wait for a worker; a paused queue stays paused.

        Parameters:
          delayed: whether to remove delayed jobs, too.

        Returns:
          How many jobs were removed.
        """
        return manage.drain(self.handle, delayed=delayed)

    def obliterate(self, *, force: bool = False) -> None:
        """Deletes the queue with all its jobs.

        Parameters:
          force: whether to delete active jobs, too.

        Raises:
          QueueBusy: when jobs are active, unless `force` is True.
        """
        manage.obliterate(self.handle, force=force)

    def remove_orphans(self, limit: int = 0) -> int:
        """Removes jobs that are in no state, so that no worker gets them, as removeOrphanedJobs of BullMQ does.

        A crash of another program, or deleted keys, can leave such jobs. All keys of Redis are scanned, in short calls.
        Jobs that change their state meanwhile stay.

        Parameters:
          limit: maximum number of jobs; 0: all.

        Returns:
          How many jobs were removed.

        Raises:
          OptionError: for a wrong number.
        """
        return remove_all_orphans(self.handle, limit)

    def sweep_objects(self, older_than_ms: int = SWEEP_AFTER_MS) -> Swept:
        """Deletes objects in `offload_to` that no job of the queue has any more, and no write that is not finished.

        Redis and workers of Node remove jobs without them. The keys of the queue, or of all its shards, are scanned in
        short calls.

        Parameters:
          older_than_ms: minimum age of deleted objects, ms: more than it takes to add a job whose payload is stored.

        Returns:
          How many objects were kept, and deleted.

        Raises:
          OptionError: for a queue without `offload_to`, one that does not exist, one with shards on several servers,
            and a wrong age.
        """
        return sweep(self.handle, older_than_ms)

    # job schedulers

    def upsert_scheduler(
        self,
        scheduler_id: str,
        *,
        every: int | str | None = None,
        pattern: str | None = None,
        tz: str | None = None,
        name: str | None = None,
        data: Any = None,
        limit: int | None = None,
        offset: int | str | None = None,
        start_date: int | None = None,
        end_date: int | None = None,
        opts: Mapping[str, Any] | None = None,
    ) -> int:
        """Creates or changes a job scheduler, which adds a job again and again, as upsertJobScheduler does.

        Its next job is added at once, and each further one when a worker, Node's or Spark's, starts the one before. In
        Bull 3 and 4 it is a job with the option `repeat`. The queue's defaults also apply to its jobs, except for
        delays and `deduplication`.

        Parameters:
          scheduler_id: id of the job scheduler; one that exists is changed. Without ':' in Bull.
          every: interval, ms or a duration of ISO 8601 such as PT15M; instead of `pattern`. The first job of BullMQ
            runs at once unless `start_date` or `offset` is given, Bull's at the next multiple of the interval.
          pattern: cron pattern of 5 fields, or 6 with seconds first; instead of `every`.
          tz: time zone of the pattern, such as Europe/Berlin; default: the zone where the next time is computed.
          name: name of the jobs; default: the queue's default, else the id (BullMQ).
          data: payload of the jobs: anything JSON can hold, or RawJson; default: {}.
          limit: maximum number of jobs.
          offset: by how much the times are shifted from multiples of `every`, as `every`; BullMQ only.
          start_date: no job runs before, ms since 1970; in Bull for patterns only.
          end_date: no more jobs are added after, ms since 1970.
          opts: other options of the Node library for the jobs, by its own names.

        Returns:
          When its next job is due, ms since 1970.

        Raises:
          OptionError: for a value that is wrong; nothing was changed.
          DialectError: for a queue of Bull 1 or 2, and a property that the dialect lacks.
          IntakeClosed: when the queue accepts no jobs; see `close_intake`.
          WrongState: when a job with the id of its next one exists; nothing was changed.
        """
        row = {
            "id": scheduler_id,
            "every": every,
            "pattern": pattern,
            "tz": tz,
            "name": name,
            "data": None if data is None else data_text(data),
            "limit": limit,
            "offset": offset,
            "startDate": start_date,
            "endDate": end_date,
            "opts": opts,
        }
        return schedulers.upsert(self.handle, row, self._defaults)

    def schedulers(self) -> list[Scheduler]:
        """Lists the job schedulers of the queue.

        Returns:
          The job schedulers, those that are due first at the beginning.

        Raises:
          DialectError: for a queue of Bull 1 or 2.
        """
        return list(schedulers.schedulers(self.handle))

    def scheduler(self, scheduler_id: str) -> Scheduler | None:
        """Reads one job scheduler.

        Parameters:
          scheduler_id: id of the job scheduler.

        Returns:
          The job scheduler, or None when there is none of this id.

        Raises:
          DialectError: for a queue of Bull 1 or 2.
        """
        return schedulers.scheduler(self.handle, scheduler_id)

    def run_scheduler(self, scheduler_id: str) -> str:
        """Adds a job like the next one of a job scheduler, which runs at once; the next one still runs at its time.

        Parameters:
          scheduler_id: id of the job scheduler.

        Returns:
          The id of the job.

        Raises:
          JobMissing: when there is no such job scheduler, or its next job is gone.
          DialectError: for a queue of Bull 1 or 2.
        """
        return self.add_many([schedulers.job_of(self.handle, scheduler_id)]).ids[0]

    def remove_scheduler(self, scheduler_id: str) -> bool:
        """Removes a job scheduler and its next job, as removeJobScheduler does. A job that waits for a worker stays.

        Parameters:
          scheduler_id: id of the job scheduler.

        Returns:
          Whether it existed.

        Raises:
          DialectError: for a queue of Bull 1 or 2.
        """
        return schedulers.remove(self.handle, scheduler_id)

    # writes of Spark

    def recover(self) -> list[WriteRecord]:
        """Finishes registered writes of Spark whose driver died, oldest first.

        Returns:
          Records of the finished writes.

        Raises:
          StagedDataLost: when staged jobs of a write are gone from Redis.
        """
        return recover(self.handle)

    def writes(self) -> list[WriteRecord]:
        """Reads the records of the writes of the last 30 days.

        Returns:
          The records, the oldest first, unfinished ones last.
        """
        return records(self.handle)

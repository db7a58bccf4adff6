"""The methods of BullQueue that add jobs and flows, and what all of its methods use."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import uuid4

from spark_bull.core.dialects.base import DEFAULT_NAME
from spark_bull.core.dialects.encode.chunks import ChunkBuilder
from spark_bull.core.dialects.encode.codec import carrying, encode, rows_of
from spark_bull.core.dialects.terms import SPREAD_SEED
from spark_bull.core.error_text import short_errors
from spark_bull.core.errors import OptionError, SparkBullError, did_you_mean, restated
from spark_bull.core.late import late
from spark_bull.core.model.jobs import Added, NewJob
from spark_bull.core.options.arguments import JOB_TEXTS, JobProperties, listing
from spark_bull.core.options.table import QueueOptions
from spark_bull.core.queue.dispatch.add import add_chunk, check_queues, rejection, sealed, sum_of
from spark_bull.core.queue.handle.admission import LengthLimit, ReplicaTerms, check_replicas, wait_for_replicas
from spark_bull.core.queue.handle.handle import QueueHandle

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from spark_bull.core.dialects.encode import flows as encode_flows
    from spark_bull.core.model.read_jobs import AddedFlow, FlowJob
    from spark_bull.core.queue.dispatch import flows as trees
    from spark_bull.core.tracing.otel import Spans
else:
    (encode_flows,) = late("flows", of="spark_bull.core.dialects.encode")
    (trees,) = late("flows", of="spark_bull.core.queue.dispatch")

T = TypeVar("T")


@contextmanager
def _naming(what: str, given: Iterable[T]) -> Iterator[Iterator[T]]:
    """Yields the jobs or flows. Errors of a row name one by its number, unless it is the only one."""
    remaining = iter(given)
    first = [*islice(remaining, 2)]
    try:
        yield chain(first, remaining)
    except SparkBullError as error:
        if not (text := str(error)).startswith("row "):
            raise
        # A colon or a comma follows the number.
        named = text.replace("row", what, 1) if len(first) > 1 else text.removeprefix("row 0")[2:]
        raise restated(error, named) from error.__cause__


class OpenQueue:
    """What all methods of BullQueue use: the handle of the queue, its options, and the defaults of its jobs."""

    handle: QueueHandle
    _options: QueueOptions
    _defaults: dict[str, Any]

    @property
    def name(self) -> str:
        """Name of the queue."""
        return self.handle.keys.queue

    @property
    def protocol(self) -> str:
        """Dialect in use: bull-1, bull or bullmq."""
        return self.handle.dialect.name


@short_errors
class Adding(OpenQueue):
    """Adds jobs and flows."""

    _limit: LengthLimit | None
    _replica_terms: ReplicaTerms | None
    _spans: Spans | None

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
        first_row, source = 0, uuid4().hex
        with _naming("flow", flows) as remaining:
            while batch := list(islice(remaining, 1_000)):
                levels = trees.levels_of(self.name, batch)
                encoded = encode_flows.Flows(
                    self.handle.dialect, levels, defaults, range(first_row, first_row + len(batch))
                )
                first_row += len(batch)
                most_jobs, most_bytes = self._options.chunk_size, self._options.chunk_bytes
                for chunk in trees.flow_chunks(self.handle, encoded, most_jobs, most_bytes, source):
                    reply = trees.add_flow_chunk(self.handle, self.handle.sender, uuid4().hex, chunk)
                    for order, reason in reply.rejected:
                        raise rejection(encoded.label(order), reason.decode(), "other flows")
                    for order, job_id in reply.winners:
                        # Only first jobs are deduplicated, which have the first numbers.
                        encoded.ids[0][order] = job_id.decode("utf-8", "replace")
                yield from trees.added_flows(levels, encoded.ids)
        if primaries:
            self._wait_for_replicas(primaries)

    def _check_replicas(self) -> frozenset[str]:
        """Returns the primaries of Redis if replicas must have what is added. Raises NotReplicated."""
        terms = self._replica_terms
        return check_replicas(self.handle.connection, terms, self.handle.keys.queue) if terms else frozenset()

    def _wait_for_replicas(self, primaries: frozenset[str]) -> int | None:
        terms = self._replica_terms
        return wait_for_replicas(self.handle.connection, self.handle.keys, terms, primaries) if terms else None

    def _added(self, jobs: Iterable[NewJob], context: str = "") -> Added:
        with _naming("job", jobs) as given:
            primaries = self._check_replicas()
            defaults = carrying(context) | self._defaults | {SPREAD_SEED: uuid4().hex}
            added = sum_of(self._add(given, defaults))
            if primaries:
                added = replace(added, replicas=self._wait_for_replicas(primaries))
            for row, reason in added.rejected.items():
                raise rejection(row, reason)
            return added

    def _add(self, jobs: Iterable[NewJob], defaults: Mapping[str, Any]) -> Iterator[Added]:
        builder = ChunkBuilder(self._options.chunk_size, self._options.chunk_bytes)
        remaining, first_row, sent, source = iter(jobs), 0, 0, uuid4().hex
        while batch := list(islice(remaining, 10_000)):
            numbers = range(first_row, first_row + len(batch))
            columns = encode(self.handle.dialect, rows_of(batch, first_row), defaults, numbers)
            check_queues(self.handle, columns)
            first_row += len(batch)
            columns = sealed(self.handle, columns, source, numbers)
            for rows, packed in (*builder.add(columns), *builder.flush()):
                added = add_chunk(
                    self.handle, self.handle.sender, uuid4().hex, rows, packed, want_ids=True, limit=self._limit
                )
                yield replace(added, rejected={sent + row: reason for row, reason in added.rejected.items()})
                sent += rows

"""The order in which jobs run: the column `dependsOn`, and the option `sequenceBy`.

`dependsOn` has ids of jobs of the same write, after which the job of the row runs. With `sequenceBy`, jobs with the
same key run one after the other, in the order of the rows. The driver adds the rows of all partitions in order, with
exactly-once delivery, so that no shuffle is needed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from spark_bull.core.dialects.encode.chunks import EncodedJobs, collapsed, listed
from spark_bull.core.dialects.terms import AT_LEAST_ONCE, DEDUPLICATION, DELIVERY, PARENT, failure_flag, failure_option
from spark_bull.core.errors import OptionError
from spark_bull.core.queue.dispatch.graph import DEPENDS_ON, check_new, graph_of, stage_graph
from spark_bull.core.queue.dispatch.write_records import GRAPH, Fields
from spark_bull.core.queue.handle.handle import QueueHandle
from spark_bull.spark.dispatch.feature import Plan, TaskRows, WholeWrite, WriteFeature, WriteRequest
from spark_bull.spark.dispatch.rows import CHILDREN, SEQUENCE
from spark_bull.spark.staging.plan import CommitMessage, TaskPart

#: What a write of jobs that depend on each other can't have, and why.
_REFUSED_IN_GRAPHS: Final = {
    PARENT: "its parent is a job that depends on it",
    DEDUPLICATION: "a job that others depend on can't be deduplicated",
    "uniqueBy": "a job that others depend on can't be deduplicated",
    CHILDREN: "let the job depend on them",
    SEQUENCE: "let each job of the sequence depend on the one before",
    "onFinish": "let a job depend on the last ones",
    "maxLength": "all jobs are added before the first one runs",
    "shards": "a job can't wait for jobs of another queue",
}
_POLICIES: Final = ("wait", "fail", "ignore", "remove")


@dataclass(frozen=True)
class DependsOn(WriteFeature):
    """on_failure: the option `onFailure`. replaces: whether the write replaces the queue."""

    on_failure: str
    replaces: bool

    @classmethod
    def planned(cls, request: WriteRequest) -> DependsOn | None:
        options, rows, on_failure = request.options, request.rows, request.options.on_failure
        if DEPENDS_ON not in rows.columns:
            if on_failure is not None and not rows.sequence_by and options.on_finish is None:
                raise OptionError(
                    f"expected `onFinish`, `sequenceBy` or a column `{DEPENDS_ON}` with `onFailure`, got none: leave "
                    "`onFailure` out"
                )
            return None
        if options.delivery == AT_LEAST_ONCE:
            raise OptionError(
                f"expected `{DELIVERY}` to be exactly-once with a column `{DEPENDS_ON}`, got {AT_LEAST_ONCE}: no job "
                "may run before all are added"
            )
        if options.queue is None:
            raise OptionError(f"expected an option `queue` with a column `{DEPENDS_ON}`, got a column: use one queue")
        for name, reason in _REFUSED_IN_GRAPHS.items():
            if name in rows.columns or options.value(name):
                raise OptionError(f"expected one of `{DEPENDS_ON}` and `{name}`, got both: {reason}")
        if "jobId" not in rows.columns:
            raise OptionError(f"expected a column `jobId`, or `jobIdColumn`, with a column `{DEPENDS_ON}`, got none")
        if on_failure not in (None, *_POLICIES):
            raise OptionError(
                f"expected `onFailure` to be one of {', '.join(_POLICIES)} with a column `{DEPENDS_ON}`, got: "
                f"{on_failure!r}"
            )
        return cls(on_failure or "wait", request.overwrite)

    def encode(self, jobs: EncodedJobs, rows: TaskRows) -> EncodedJobs:
        """The jobs wait until they are released; the part of the task notes what each depends on."""
        ids, policies = listed(jobs.job_id, jobs.n), listed(jobs.on_failure, jobs.n)
        for number, job_id, policy, others in zip(rows.numbers, ids, policies, rows.values[DEPENDS_ON], strict=True):
            if job_id is None:
                raise OptionError(f"row {number}: expected a `jobId` with a column `{DEPENDS_ON}`, got NULL")
            if others is not None and None in others:
                raise OptionError(f"row {number}: expected `{DEPENDS_ON}` to have ids of jobs, got NULL among them")
            if policy is not None:
                raise OptionError(
                    f"row {number}: expected no failure policy in `opts` with a column `{DEPENDS_ON}`: use `onFailure`"
                )
            rows.part.graph.append((job_id, tuple(others or ())))
        return jobs._replace(waits_for_children=True)

    def committing(self, plan: Plan, written: list[CommitMessage]) -> list[CommitMessage]:
        """One more message has what links and releases the jobs, after all rows. If an id is wrong, nothing was
        written.
        """
        rows = [row for message in written for part in message.parts for row in part.graph]
        handle = plan.handle
        if not rows or handle is None:
            return written
        graph = graph_of(rows)
        if not plan.has_written(handle, plan.identity_in(written)) and not self.replaces:
            check_new(handle, graph)
        flag = failure_flag(failure_option("onFailure", self.on_failure))
        staged = stage_graph(handle, plan.write_id_in(written), graph, flag, plan.options.stage_ttl_ms)
        part = TaskPart(queue=handle.keys.queue, dialect=handle.dialect.name, stage=staged.stage, chunks=staged.chunks)
        return [*written, replace(written[0], parts=(part,))]

    def record(self, write: WholeWrite) -> Fields:
        return GRAPH.fields()


#: What the members of a sequence can't have, and why.
_REFUSED_IN_SEQUENCES: Final = {
    PARENT: "the parent of a job is the next one of its sequence",
    DEDUPLICATION: "a job with a parent can't be deduplicated",
    CHILDREN: "a job of a sequence waits for the one before it only",
}


@dataclass(frozen=True)
class Sequences(WriteFeature):
    """on_failure: the option `onFailure`."""

    on_failure: str

    @classmethod
    def planned(cls, request: WriteRequest) -> Sequences | None:
        options, rows = request.options, request.rows
        if not rows.sequence_by:
            return None
        if options.delivery == AT_LEAST_ONCE:
            raise OptionError(
                f"expected `delivery` to be exactly-once with `sequenceBy`, got {AT_LEAST_ONCE}: tasks that add jobs "
                "at the same time, or again, do not keep the order of the rows"
            )
        for name, reason in _REFUSED_IN_SEQUENCES.items():
            if name in rows.columns or options.value(name) is not None:
                raise OptionError(f"expected one of `sequenceBy` and `{name}`, got both: {reason}")
        if rows.unique_by:
            raise OptionError(
                f"expected one of `sequenceBy` and `uniqueBy`, got both: {_REFUSED_IN_SEQUENCES[DEDUPLICATION]}"
            )
        return cls(options.on_failure or "ignore")

    def check(self, handle: QueueHandle) -> None:
        handle.dialect.require("flows", "`sequenceBy`")

    def encode(self, jobs: EncodedJobs, rows: TaskRows) -> EncodedJobs:
        for name, column in ((PARENT, jobs.parent_id), (DEDUPLICATION, jobs.deduplication_id)):
            for number, given in zip(rows.numbers, listed(column, jobs.n), strict=True):
                if given is not None:
                    raise OptionError(
                        f"row {number}: expected no `{name}` with `sequenceBy`: {_REFUSED_IN_SEQUENCES[name]}"
                    )
        for number, policy in zip(rows.numbers, listed(jobs.on_failure, jobs.n), strict=True):
            if policy is not None:
                raise OptionError(
                    f"row {number}: expected no failure policy in `opts` with `sequenceBy`, as `onFailure` says what "
                    "becomes of the next job: leave it out"
                )
        flag = failure_flag(failure_option("onFailure", self.on_failure))
        return jobs._replace(sequence=collapsed(rows.values[SEQUENCE]), sequence_failure=flag)

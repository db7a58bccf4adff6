"""The order in which jobs run: the column `dependsOn`, and the option `sequenceBy`.

`dependsOn` has ids of jobs of the same write, after which the job of the row runs. With `sequenceBy`, jobs with the
same key run one after the other, in the order of the rows. The driver adds the rows of all partitions in order, with
exactly-once delivery, so that no shuffle is needed.

In BullMQ, a job has at most one parent, and the parent starts when its children have ended. If one job depends on a
job, it becomes the parent of that job. If several do, a relay becomes the parent: a job that is never run, and whose
end releases them. A promoter ends it as soon as BullMQ moves it to the waiting jobs of its queue.

No job of the write may start before all are added and linked. So the commit adds all of them to waiting-children.
Chunks that the driver has staged follow: they link the jobs, then release those that depend on none. So tasks may
stage their rows in any order.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Final

from spark_bull.core.dialects.encode.chunks import EncodedJobs, collapsed, listed, packed_map
from spark_bull.core.dialects.terms import AT_LEAST_ONCE, DEDUPLICATION, DELIVERY, PARENT, failure_flag, failure_option
from spark_bull.core.errors import OptionError
from spark_bull.core.queue.dispatch.write_records import GRAPH, Fields, StagedChunk, StagedPart, stage_chunks
from spark_bull.core.queue.handle.handle import CHUNK_SIZE, QueueHandle
from spark_bull.spark.dispatch.feature import Plan, TaskRows, WholeWrite, WriteFeature, WriteRequest
from spark_bull.spark.dispatch.rows import CHILDREN, DEPENDS_ON, SEQUENCE
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


#: Maximum number of jobs that follow each other, each depending on the one before.
MAX_DEPTH: Final = 1_000
#: Ids that a message shows of a cycle.
_SHOWN_IDS: Final = 8

#: The ids of a write -> the ids of the jobs that each depends on.
Graph = Mapping[str, Sequence[str]]


def graph_of(rows: Sequence[tuple[str, Sequence[str]]]) -> Graph:
    """The graph of rows: the id of each and those that it depends on, each once.

    Raises OptionError for an id that two rows or none have, a cycle, and more than MAX_DEPTH jobs in a row.
    """
    graph = {job_id: [*dict.fromkeys(others)] for job_id, others in rows}
    if len(graph) < len(rows):
        counts = Counter(job_id for job_id, _ in rows)
        twice = next(job_id for job_id, count in counts.items() if count > 1)
        raise OptionError(f"expected each `jobId` once in a write with `{DEPENDS_ON}`, got two jobs {twice!r}")
    for job_id, others in graph.items():
        for other in others:
            if other not in graph:
                raise OptionError(
                    f"expected `{DEPENDS_ON}` of job {job_id!r} to have ids of jobs of the same write, got: {other!r}"
                )
    _check_order(graph)
    return graph


def _check_order(graph: Graph) -> None:
    """Raises OptionError for a cycle, and for jobs that follow each other over the bound."""
    dependents = _dependents(graph)
    left = {job_id: len(others) for job_id, others in graph.items()}
    level, depth = [job_id for job_id, count in left.items() if not count], 0
    done = len(level)
    while level:
        depth += 1
        following = []
        for dependent in (one for job_id in level for one in dependents.get(job_id, ())):
            left[dependent] -= 1
            if not left[dependent]:
                following.append(dependent)
        level, done = following, done + len(following)
    if done < len(graph):
        raise OptionError(f"expected `{DEPENDS_ON}` without a cycle, got: {_cycle(graph, left)}")
    if depth > MAX_DEPTH:
        raise OptionError(
            f"expected at most {MAX_DEPTH:,} jobs that depend on each other in a row, got {depth:,}: divide the write"
        )


def _dependents(graph: Graph) -> Mapping[str, list[str]]:
    dependents: dict[str, list[str]] = defaultdict(list)
    for job_id, others in graph.items():
        for other in others:
            dependents[other].append(job_id)
    return dependents


def _cycle(graph: Graph, left: Mapping[str, int]) -> str:
    """A cycle among jobs with dependencies that are left, by the ids of its jobs."""
    path, places = [next(job_id for job_id, count in left.items() if count)], dict[str, int]()
    while path[-1] not in places:
        places[path[-1]] = len(path) - 1
        path.append(next(other for other in graph[path[-1]] if left[other]))
    cycle = path[places[path[-1]] :]
    shown = cycle if len(cycle) <= _SHOWN_IDS + 1 else [*cycle[:_SHOWN_IDS], "…", cycle[-1]]
    return " depends on ".join(shown)


def check_new(handle: QueueHandle, graph: Graph) -> None:
    """Raises OptionError for a job that exists."""
    ids = iter(graph)
    while some := [*islice(ids, CHUNK_SIZE)]:
        there = handle.connection.pipeline([("EXISTS", handle.keys.job(job_id)) for job_id in some])
        for job_id in (job_id for job_id, found in zip(some, there, strict=True) if found):
            raise OptionError(
                f"expected jobs with `{DEPENDS_ON}` to be new, but queue {handle.keys.queue} has a job {job_id!r}: use "
                "other ids, or give the write an identity (`txnAppId`, `txnVersion`) to run it again"
            )


def stage_graph(handle: QueueHandle, write_id: str, graph: Graph, on_failure: str | None, ttl_ms: int) -> StagedPart:
    """Stages what links the jobs of a graph, and releases those that depend on none. on_failure: see FAILURE_FLAGS."""
    stage, ids = handle.keys.stage(f"{write_id}.{DEPENDS_ON}"), iter(graph)
    chunks = [*_links(graph, on_failure)]
    while released := [*islice(ids, CHUNK_SIZE)]:
        chunks.append({"n": 0, "released": released})
    staged = [StagedChunk(stage, number, packed_map(chunk)) for number, chunk in enumerate(chunks)]
    if staged:
        stage_chunks(handle.connection, staged, ttl_ms)
    return StagedPart(stage, len(staged), 0)


def _links(graph: Graph, on_failure: str | None) -> Iterator[dict[str, Any]]:
    """Chunks of up to CHUNK_SIZE dependencies."""
    links: list[tuple[str, list[str], bool]] = []
    size = 0
    for job_id, dependents in _dependents(graph).items():
        for start in range(0, len(dependents), CHUNK_SIZE):
            some = dependents[start : start + CHUNK_SIZE]
            if size + len(some) > CHUNK_SIZE:
                yield _chunk(links, on_failure)
                links, size = [], 0
            links.append((job_id, some, len(dependents) > 1))
            size += len(some)
    if links:
        yield _chunk(links, on_failure)


def _chunk(links: Sequence[tuple[str, list[str], bool]], on_failure: str | None) -> dict[str, Any]:
    ids, dependents, relayed = ([*column] for column in zip(*links, strict=True))
    chunk = {"n": 0, "ids": ids, "dependents": dependents, "relayed": relayed}
    return chunk if on_failure is None else {**chunk, "on_failure": on_failure}


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

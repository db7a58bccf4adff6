"""Jobs of one write that depend on each other (BullMQ): a job runs after all jobs that it depends on.

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
from itertools import islice
from typing import Any, Final

from spark_bull.core.dialects.encode.chunks import packed_map
from spark_bull.core.errors import OptionError
from spark_bull.core.queue.dispatch.write_records import StagedChunk, StagedPart, stage_chunks
from spark_bull.core.queue.handle.handle import CHUNK_SIZE, QueueHandle

#: Name of the column with the ids of the jobs that the job of the row depends on.
DEPENDS_ON: Final = "dependsOn"
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

"""A flow as a tree: a job with its children and theirs, read level by level."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Final

from spark_bull.core.errors import expected
from spark_bull.core.keys import QueueKeys
from spark_bull.core.model.jobs import Dependency, FlowNode, Job
from spark_bull.core.queue.handle.handle import QueueHandle
from spark_bull.core.queue.jobs.dependencies import child_counts, dependencies_of
from spark_bull.core.queue.jobs.read import read_ids
from spark_bull.core.store.connection import Command

#: Defaults of the bounds of a tree: levels, as in BullMQ, and jobs.
DEFAULT_DEPTH: Final = 10
DEFAULT_JOBS: Final = 1_000


@dataclass(frozen=True)
class _Place:
    """A job of the tree. parent, dependency: the place above it, and what that keeps of this job."""

    keys: QueueKeys
    id: str
    parent: _Place | None = field(default=None, compare=False)
    dependency: Dependency | None = field(default=None, compare=False)


def read_flow(
    handle: QueueHandle, job_id: str, max_depth: int = DEFAULT_DEPTH, max_jobs: int = DEFAULT_JOBS
) -> FlowNode | None:
    """A job with its descendants: at most `max_depth` levels and `max_jobs` jobs, level by level; None: no such job.

    The tree is no snapshot. Raises DialectError and OptionError.
    """
    handle.dialect.require("flows")
    for name, bound in (("max_depth", max_depth), ("max_jobs", max_jobs)):
        if not isinstance(bound, int) or isinstance(bound, bool) or bound < 1:
            raise expected(name, "an integer >= 1", bound)
    levels = [[_Place(handle.keys, job_id)]]
    seen = set(levels[0])
    jobs: dict[_Place, Job] = {}
    counts: dict[_Place, int] = {}
    while levels[-1]:
        below: list[_Place] = []
        for there, places in _by_queue(handle, levels[-1]):
            jobs |= _jobs(there, places)
            present = [place for place in places if place in jobs]
            counts |= _counts(there, present)
            if len(levels) < max_depth:
                below += islice(_children(there, present, seen), max_jobs - len(seen))
        levels.append(below)
    if levels[0][0] not in jobs:
        return None
    return _tree(handle.keys, levels, jobs, counts)


def roots_among(handle: QueueHandle, job_ids: Sequence[str]) -> list[str]:
    """Those of some jobs that have children and no parent."""
    commands: list[Command] = [("HGET", handle.keys.job(job_id), "parentKey") for job_id in job_ids]
    parents, counts = handle.connection.pipeline(commands), child_counts(handle, job_ids)
    return [
        job_id
        for job_id, parent, by_state in zip(job_ids, parents, counts, strict=True)
        if not parent and any(by_state.values())
    ]


def _by_queue(handle: QueueHandle, level: Sequence[_Place]) -> Iterator[tuple[QueueHandle, list[_Place]]]:
    """The places of a level by queue. All queues of a flow are in one Redis, and in one slot of a cluster."""
    by_keys: dict[QueueKeys, list[_Place]] = defaultdict(list)
    for place in level:
        by_keys[place.keys].append(place)
    for keys, places in by_keys.items():
        there = (
            handle if keys == handle.keys else replace(handle, keys=keys, connection=handle.connection.at(keys.base))
        )
        yield there, places


def _jobs(handle: QueueHandle, places: Sequence[_Place]) -> Mapping[_Place, Job]:
    by_id = {place.id: place for place in places}
    return {by_id[job.id]: job for chunk in read_ids(handle, by_id) for job in chunk.jobs(handle.keys.queue)}


def _counts(handle: QueueHandle, places: Sequence[_Place]) -> Mapping[_Place, int]:
    found = child_counts(handle, [place.id for place in places])
    return {place: sum(by_state.values()) for place, by_state in zip(places, found, strict=True)}


def _children(handle: QueueHandle, parents: Sequence[_Place], seen: set[_Place]) -> Iterator[_Place]:
    """The children of these jobs that are not in the tree yet: one that ends meanwhile is found twice."""
    by_id = {parent.id: parent for parent in parents}
    for found in dependencies_of(handle, list(by_id)):
        # The name of a queue has the prefix in front if it is another one.
        prefix, _, queue = found.child_queue.rpartition(":")
        keys = QueueKeys(queue, prefix or handle.keys.prefix)
        place = _Place(keys, found.child_id, by_id[found.id], found)
        if place not in seen:
            seen.add(place)
            yield place


def _tree(
    root: QueueKeys, levels: Sequence[Sequence[_Place]], jobs: Mapping[_Place, Job], counts: Mapping[_Place, int]
) -> FlowNode:
    """The tree, made from the lowest level upwards."""
    children: dict[_Place, list[FlowNode]] = defaultdict(list)
    node: FlowNode
    for depth, level in reversed([*enumerate(levels)]):
        for place in level:
            above = place.parent
            node = FlowNode(
                queue=_name(root, place.keys),
                id=place.id,
                depth=depth,
                job=jobs.get(place),
                parent_queue=_name(root, above.keys) if above else None,
                parent_id=above.id if above else None,
                dependency=place.dependency.state if place.dependency else None,
                child_count=counts.get(place, 0),
                children=tuple(children.pop(place, ())),
            )
            if above:
                children[above].append(node)
    return node


def _name(root: QueueKeys, keys: QueueKeys) -> str:
    """The name of a queue, with the prefix in front if it is another one than that of the first job."""
    return keys.queue if keys.prefix == root.prefix else f"{keys.prefix}:{keys.queue}"

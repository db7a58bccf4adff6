"""The results of a parent's children, which BullMQ stores with the parent."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, Final

from spark_bull.core.errors import OptionError, check_count
from spark_bull.core.keys import QueueKeys
from spark_bull.core.model.job_json import json_or_text
from spark_bull.core.model.read_jobs import Dependency, FlowNode, Job
from spark_bull.core.queue.handle.handle import DEFAULT_DEPTH, DEFAULT_JOBS, MAX_CHILDREN, QueueHandle
from spark_bull.core.queue.jobs.read import read_ids
from spark_bull.core.store.scripts import Command

#: Approximate number of results that one command reads.
SCAN_SIZE: Final = 500


def values_of(handle: QueueHandle, job_id: str, limit: int = MAX_CHILDREN) -> dict[str, Any]:
    """The return values of the completed children of a job, by the keys of the children.

    Raises DialectError, and OptionError if there are more than `limit`.
    """
    handle.dialect.require("flows")
    fields = _fields(handle, handle.keys.children_values(job_id), f"values of children of job {job_id}", limit)
    return {child: json_or_text(opened_value(handle, *named(handle.keys, child), value)) for child, value in fields}


def named(keys: QueueKeys, child: str) -> tuple[str, str]:
    """The queue and id of a child. The name of a queue has no ':', an id can have some. The name has the prefix in
    front if the prefix is not the one of `keys`.
    """
    prefix = f"{keys.prefix}:"
    if child.startswith(prefix):
        queue, _, job_id = child[len(prefix) :].partition(":")
    else:
        queue, _, job_id = child.rpartition(":")
    return queue, job_id


def opened_value(handle: QueueHandle, queue: str, job_id: str, value: str) -> str:
    """The result of a child of a job, as it was before it was kept. queue: as `named` returns it."""
    prefix, _, name = queue.rpartition(":")
    return handle.payloads.opened(QueueKeys(name, prefix or handle.keys.prefix), "returnvalue", job_id, value)


def failures_of(handle: QueueHandle, job_id: str, limit: int = MAX_CHILDREN) -> dict[str, str]:
    """The reasons of failed children that do not fail their parent, by the keys of the children.

    Raises DialectError, and OptionError if there are more than `limit`.
    """
    handle.dialect.require("flows")
    return dict(_fields(handle, handle.keys.children_failures(job_id), f"failures of children of job {job_id}", limit))


def _fields(handle: QueueHandle, key: str, what: str, limit: int) -> Iterator[tuple[str, str]]:
    """The fields of a HASH. A field that is added meanwhile may be left out."""
    call = handle.connection.call
    count = call("HLEN", key)
    if count > limit:
        raise OptionError(
            f"expected at most {limit:,} {what} of queue {handle.keys.queue}, found {count:,}: raise `limit`"
        )
    cursor, is_over = 0, count == 0
    while not is_over:
        cursor, found = call("HSCAN", key, cursor, "COUNT", SCAN_SIZE)
        is_over = int(cursor) == 0
        for child, value in found.items():
            yield child.decode(errors="replace"), value.decode(errors="replace")


#: State of children, in BullMQ's words -> how many there are, how they are read, and their key.
_STATES: Final[dict[str, tuple[str, str, Callable[[QueueKeys, str], str]]]] = {
    "unprocessed": ("SCARD", "SSCAN", QueueKeys.children),
    "processed": ("HLEN", "HSCAN", QueueKeys.children_values),
    "ignored": ("HLEN", "HSCAN", QueueKeys.children_failures),
    "failed": ("ZCARD", "ZSCAN", QueueKeys.failed_children),
}


def child_counts(handle: QueueHandle, job_ids: Sequence[str]) -> list[dict[str, int]]:
    """The number of children of each of these jobs in each state."""
    commands: list[Command] = [
        (count, key(handle.keys, job_id)) for job_id in job_ids for count, _, key in _STATES.values()
    ]
    replies = iter(handle.connection.pipeline(commands))
    return [{state: int(next(replies)) for state in _STATES} for _ in job_ids]


def dependencies_of(handle: QueueHandle, job_ids: Sequence[str]) -> Iterator[Dependency]:
    """The children of these jobs. One that is added or ends meanwhile may be left out, or be there twice.

    Raises DialectError.
    """
    handle.dialect.require("flows")
    for job_id, counts in zip(job_ids, child_counts(handle, job_ids), strict=True):
        for state, count in counts.items():
            if count:
                yield from _children(handle, job_id, state)


def _children(handle: QueueHandle, job_id: str, state: str) -> Iterator[Dependency]:
    _, scan, key_of = _STATES[state]
    key, cursor, is_over = key_of(handle.keys, job_id), 0, False
    while not is_over:
        cursor, found = handle.connection.call(scan, key, cursor, "COUNT", SCAN_SIZE)
        is_over = int(cursor) == 0
        for child, value in _pairs(found):
            queue, child_id = named(handle.keys, child.decode("utf-8", "replace"))
            text = value.decode("utf-8", "replace") if isinstance(value, bytes) else None
            if text is not None and state == "processed":
                text = opened_value(handle, queue, child_id, text)
            yield Dependency(handle.keys.queue, job_id, queue, child_id, state, text if scan == "HSCAN" else None)


def _pairs(found: Any) -> Iterator[tuple[bytes, Any]]:
    """Members and values of a reply: a mapping, a list of members, or one of members and scores."""
    if isinstance(found, dict):
        yield from found.items()
    else:
        for member in found:
            yield (member[0], None) if isinstance(member, (tuple, list)) else (member, None)


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
    check_count("max_depth", max_depth, 1)
    check_count("max_jobs", max_jobs, 1)
    levels = [[_Place(handle.keys, job_id)]]
    seen = set(levels[0])
    jobs: dict[_Place, Job] = {}
    counts: dict[_Place, int] = {}
    while levels[-1]:
        below: list[_Place] = []
        for there, places in _by_queue(handle, levels[-1]):
            by_id = {place.id: place for place in places}
            jobs |= {by_id[job.id]: job for chunk in read_ids(there, by_id) for job in chunk.jobs(there.keys.queue)}
            present = [place for place in places if place in jobs]
            found = child_counts(there, [place.id for place in present])
            counts |= {place: sum(by_state.values()) for place, by_state in zip(present, found, strict=True)}
            if len(levels) < max_depth:
                below += islice(_places_below(there, present, seen), max_jobs - len(seen))
        levels.append(below)
    if levels[0][0] not in jobs:
        return None
    return _tree(handle.keys, levels, jobs, counts)


def roots_among(handle: QueueHandle, job_ids: Sequence[str]) -> list[str]:
    """The jobs that have children and no parent."""
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


def _places_below(handle: QueueHandle, parents: Sequence[_Place], seen: set[_Place]) -> Iterator[_Place]:
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
    """The name of a queue, with the prefix in front if the first job has another one."""
    return keys.queue if keys.prefix == root.prefix else f"{keys.prefix}:{keys.queue}"

"""The children of jobs, as BullMQ keeps them with the parent: unfinished, completed, and failed ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from spark_bull.core.errors import OptionError
from spark_bull.core.keys import QueueKeys
from spark_bull.core.model.jobs import Dependency
from spark_bull.core.queue.handle.handle import QueueHandle
from spark_bull.core.queue.jobs.children import MAX_CHILDREN, SCAN_SIZE, named, opened_value
from spark_bull.core.store.connection import Command

#: State of children, in BullMQ's words -> how many there are, how they are read, and their key.
_STATES: Final[dict[str, tuple[str, str, Callable[[QueueKeys, str], str]]]] = {
    "unprocessed": ("SCARD", "SSCAN", QueueKeys.children),
    "processed": ("HLEN", "HSCAN", QueueKeys.children_values),
    "ignored": ("HLEN", "HSCAN", QueueKeys.children_failures),
    "failed": ("ZCARD", "ZSCAN", QueueKeys.failed_children),
}


def dependency_counts(handle: QueueHandle, job_id: str) -> dict[str, int]:
    """The number of children in each state. Raises DialectError."""
    handle.dialect.require("flows")
    return child_counts(handle, [job_id])[0]


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


def read_dependencies(handle: QueueHandle, job_id: str, limit: int = MAX_CHILDREN) -> list[Dependency]:
    """The children of a job. Raises DialectError, and OptionError if there are more than `limit`."""
    found = sum(dependency_counts(handle, job_id).values())
    if found > limit:
        raise OptionError(
            f"expected at most {limit:,} children of job {job_id} of queue {handle.keys.queue}, found {found:,}: raise "
            "`limit`, or read them with `view=dependencies`"
        )
    return list(dependencies_of(handle, [job_id]))


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

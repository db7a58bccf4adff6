"""Parents of jobs that are added: whether they exist, and why a job can't be their child."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from spark_bull.core.dialects.encode.chunks import EncodedJobs, listed
from spark_bull.core.errors import OptionError, ParentError
from spark_bull.core.queue.handle.handle import QueueHandle, keys_of

#: Why a script has rejected a child -> the message.
REASONS: Final[Mapping[str, str]] = {
    "missing": "expected the parent of the job to exist, but it is missing: add it first, or add both as a flow",
    "other parent": "expected a job without another parent, but it exists and has one: use another `jobId`",
    "itself": "expected another parent than the job itself, which ends",
    "cycle": "expected a parent that does not depend on the job itself, but it does: leave `parent` out",
}
#: Maximum number of ancestors in which a cycle is looked for, as in the scripts.
_MOST_ANCESTORS: Final = 100


def rejection(row: int | str, reason: str, others: str = "jobs") -> ParentError:
    """The error for a job that a script has rejected. others: what else was added with the same call."""
    return ParentError(f"row {row}: {REASONS[reason]}; {others} without such an error were added")


def check_queues(handle: QueueHandle, jobs: EncodedJobs) -> None:
    """Raises OptionError for a parent in a queue that no script can reach together with the queue of `handle`, and
    DialectError for one in a queue of another dialect.
    """
    if jobs.parent_id is not None:
        parents_of(handle, jobs)


def check_parents(handle: QueueHandle, jobs: EncodedJobs, numbers: Sequence[int | str]) -> None:
    """Raises OptionError for a job whose parent is missing, or in a queue that no script can reach together with that
    of `handle`, and as `check_other_parents` does.

    numbers: row numbers, for errors. Scripts check jobs again, which may have changed by then.
    """
    if jobs.parent_id is None:
        return
    parents = parents_of(handle, jobs)
    existing = _existing(handle, parents.values())
    for position, parent in parents.items():
        if parent not in existing:
            raise refused(numbers[position], "missing", parent)
    check_other_parents(handle, jobs, numbers)


def check_other_parents(handle: QueueHandle, jobs: EncodedJobs, numbers: Sequence[int | str]) -> None:
    """Raises OptionError for a job that exists and has another parent than the given one, which exists, too, and for
    one on which the given parent depends.
    """
    parents, ids = parents_of(handle, jobs), listed(jobs.job_id, jobs.n)
    children = {position: handle.keys.job(job_id) for position in parents if (job_id := ids[position]) is not None}
    replies = handle.connection.pipeline([("HMGET", child, "timestamp", "parentKey") for child in children.values()])
    existing = {position: reply[1] for position, reply in zip(children, replies, strict=True) if reply[0]}
    others = {
        position: parent
        for position, other in existing.items()
        if other and (parent := other.decode("utf-8", "replace")) != parents[position]
    }
    living = _existing(handle, others.values())
    for position, other in others.items():
        if other in living:
            raise refused(numbers[position], "other parent", children[position])
    ancestors = {position: parents[position] for position in existing}
    for _ in range(_MOST_ANCESTORS):
        for position, ancestor in ancestors.items():
            if ancestor == children[position]:
                raise refused(numbers[position], "cycle", ancestor)
        above = handle.connection.pipeline([("HGET", ancestor, "parentKey") for ancestor in ancestors.values()])
        ancestors = {
            position: key.decode("utf-8", "replace") for position, key in zip(ancestors, above, strict=True) if key
        }
        if not ancestors:
            break


def parents_of(handle: QueueHandle, jobs: EncodedJobs) -> dict[int, str]:
    """The keys of the parents, by the positions of their children."""
    keys = {}
    queues, ids = listed(jobs.parent_queue, jobs.n), listed(jobs.parent_id, jobs.n)
    for position, (queue, parent_id) in enumerate(zip(queues, ids, strict=True)):
        if queue is not None and parent_id is not None:
            prefix, _, name = queue.rpartition(":")
            keys[position] = keys_of(handle, name, "a parent", prefix or None).job(parent_id)
    return keys


def _existing(handle: QueueHandle, keys: Iterable[str]) -> set[str]:
    distinct = list(dict.fromkeys(keys))
    replies = handle.connection.pipeline([("EXISTS", key) for key in distinct])
    return {key for key, exists in zip(distinct, replies, strict=True) if exists}


def refused(row: int | str, reason: str, key: str) -> OptionError:
    """The error for a job that no script has got. key: of the parent, or of the job."""
    return OptionError(f"row {row}, column `parent`: {REASONS[reason]}; got: {key}")

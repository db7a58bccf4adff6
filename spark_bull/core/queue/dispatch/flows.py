"""Jobs that are added together with others.

A flow is a tree of jobs over several queues; it is added whole or not at all. Follow-ups are added by the call that
settles another job, both or neither.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple, get_args
from uuid import uuid4

from spark_bull.core.dialects.encode.chunks import EncodedJobs, columns_of, joined, listed, pack, packed_map, picked
from spark_bull.core.dialects.encode.codec import carrying, encode, rows_of
from spark_bull.core.dialects.encode.flows import Flows, Group, Level
from spark_bull.core.errors import OptionError, encodable, expected
from spark_bull.core.keys import QueueKeys
from spark_bull.core.late import late
from spark_bull.core.model.outcomes import MAX_FOLLOW_UPS, FollowUp, On
from spark_bull.core.queue.dispatch.add import (
    adding_args,
    adding_keys,
    check_other_parents,
    check_parents,
    parents_of,
    refused,
    sealed,
)
from spark_bull.core.queue.handle.admission import intake_closed, refusal_of
from spark_bull.core.queue.handle.handle import QueueHandle, keys_of, touched_keys

if TYPE_CHECKING:
    from spark_bull.core.model import read_jobs as job_types
    from spark_bull.core.model.read_jobs import AddedFlow, FlowJob
else:
    (job_types,) = late("read_jobs", of="spark_bull.core.model")

#: The keys of each queue of a flow that the scripts touch, beside the keys of jobs.
TOUCHED: Final = (
    "id",
    "meta",
    "wait",
    "paused",
    "active",
    "delayed",
    "prioritized",
    "pc",
    "waiting_children",
    "completed",
    "events",
    "marker",
)
#: Maximum number of levels of a flow.
MAX_DEPTH: Final = 100


class FlowChunk(NamedTuple):
    """Flows for one script: their number of jobs, and the other queues that their children are in."""

    jobs: int
    packed: bytes
    queues: tuple[str, ...]


def flow_chunks(handle: QueueHandle, flows: Flows, most_jobs: int, most_size: int, source: str) -> Iterator[FlowChunk]:
    """Packs flows whose first jobs belong to the queue of `handle`. source: see `kept`.

    Raises OptionError for a queue that no script can reach together with that one.
    """
    for jobs, groups in flows.chunks(most_jobs, most_size):
        keys = {group.queue: keys_of(handle, group.queue, "a child") for group in groups}
        columns = [_columns(handle, flows, group, keys[group.queue], source) for group in groups]
        packed = packed_map({"n": jobs, "groups": columns})
        yield FlowChunk(jobs, packed, tuple(queue for queue in keys if queue != handle.keys.queue))


def check_flows(handle: QueueHandle, flows: Flows) -> None:
    """Raises OptionError for a job that exists and can't become a child, and for a missing parent of a first job.

    Scripts check this again, as jobs may have changed by then.
    """
    for group in flows.groups:
        there = replace(handle, keys=keys_of(handle, group.queue, "a child"))
        some = group.checked_jobs()
        labels = [flows.label(order) for order in some.order]
        check = check_parents if group.is_root else check_other_parents
        check(there, some.jobs, labels)


def _columns(handle: QueueHandle, flows: Flows, group: Group, keys: QueueKeys, source: str) -> dict[str, object]:
    jobs = sealed(replace(handle, keys=keys), group.jobs, source, map(flows.label, group.order))
    return {
        "base": keys.base,
        "queue": keys.queue,
        "is_root": group.is_root,
        "jobs": columns_of(jobs),
        "flow": group.flows,
        "order": group.order,
        "checked": [row for row, is_checked in enumerate(group.checked, 1) if is_checked],
    }


class FlowsReply(NamedTuple):
    """As AddReply. `winners`: numbers of deduplicated jobs, and ids of the jobs that exist in their place. `rejected`:
    numbers of jobs whose flow was not added, and why.
    """

    first: int
    added: int
    duplicates: int
    deduplicated: int
    winners: Sequence[tuple[int, bytes]]
    rejected: Sequence[tuple[int, bytes]]
    dropped: int = 0


def add_flow_chunk(
    handle: QueueHandle, sender: str, number: int | str, chunk: FlowChunk, write_id: str | None = None
) -> FlowsReply:
    """Adds a chunk of flows. `sender` and `number` identify the call. write_id: the write that keeps the ids. Raises
    IntakeClosed; nothing was added.
    """
    touched = touched_keys(handle, chunk.queues, TOUCHED)
    args = adding_args(handle, number, chunk.packed, want_ids=True)
    reply = handle.run("add_flows", {**args, "from": 1}, touched=touched, **adding_keys(handle, sender, write_id))
    if refusal_of(reply):
        raise intake_closed(handle.keys.queue)
    return FlowsReply(*reply)


def levels_of(queue: str, flows: Sequence[FlowJob]) -> list[Level]:
    """The jobs of flows, level by level. queue: used for first jobs that name none.

    Raises OptionError for a wrong name, id or queue.
    """
    levels: list[Level] = []
    jobs, parents, defaults = [*flows], [-1] * len(flows), [queue] * len(flows)
    # A tree that contains itself has no last level.
    while jobs and len(levels) <= MAX_DEPTH:
        queues = [default if job.queue is None else job.queue for job, default in zip(jobs, defaults, strict=True)]
        for one in queues:
            if not isinstance(one, str):
                raise expected("queue", "the name of a queue", one)
            encodable("queue", one)
        if not levels and any(job.on_failure is not None for job in jobs):
            raise OptionError(
                "expected no `on_failure` of the first job of a flow: it has no parent in the flow; use `parent`"
            )
        policies = [job.on_failure for job in jobs] if levels else []
        levels.append(Level(rows_of(jobs), queues, parents if levels else (), policies))
        parents = [position for position, job in enumerate(jobs) for _ in job.children]
        defaults = [queues[position] for position in parents]
        jobs = [child for job in jobs for child in job.children]
    if jobs:
        raise OptionError(f"expected flows of at most {MAX_DEPTH} levels, got more: does a job contain itself?")
    return levels


def added_flows(levels: Sequence[Level], ids: Sequence[Sequence[str]]) -> list[AddedFlow]:
    """The trees of the jobs with these ids."""
    below: list[AddedFlow] = []
    parents: Sequence[int] = ()
    for level, level_ids in zip(reversed(levels), reversed(ids), strict=True):
        children: list[list[AddedFlow]] = [[] for _ in level_ids]
        for parent, child in zip(parents, below, strict=True):
            children[parent].append(child)
        below = [
            job_types.AddedFlow(queue, job_id, tuple(jobs))
            for queue, job_id, jobs in zip(level.queues, level_ids, children, strict=True)
        ]
        parents = level.parents
    return below


#: Maximum size of the follow-ups of one job, characters.
MAX_SIZE: Final = 4 << 20
_ON: Final = get_args(On)


def encode_follow_ups(
    handle: QueueHandle,
    rows: Mapping[str, Sequence[Any]],
    of: Sequence[str],
    queues: Sequence[str | None],
    ons: Sequence[Any],
    first_row: int = 0,
    context: str = "",
) -> list[FollowUp]:
    """Checks jobs as BullQueue.add does, and encodes them as follow-ups of jobs of the queue of `handle`.

    rows: the jobs, as `codec.encode` expects them. of, queues, ons: for each of them the id of the job that it follows,
    its queue (None: the same), and the outcome after which it is added. first_row: number of the first one, for errors.
    context: trace context that they carry.
    Raises OptionError or DialectError.
    """
    for on in ons:
        if on not in _ON:
            raise expected("on", " or ".join(_ON), on)
    keys = [handle.keys if queue is None else keys_of(handle, queue, "a follow-up") for queue in queues]
    numbers = range(first_row, first_row + len(of))
    encoded = encode(handle.dialect, rows, carrying(context), numbers)
    pack(encoded)
    encoded = _kept(handle, encoded, keys)
    if encoded.parent_id is not None:
        _check_parents(handle, encoded, keys, of, numbers)
        # A parent can be removed before the job is settled.
        encoded = encoded._replace(parent_optional=True)
    return [
        FollowUp(job_id, on, there.queue, there.base, job, sum(len(v) for v in job.values() if isinstance(v, str)))
        for job_id, on, there, job in zip(of, ons, keys, _jobs_of(encoded), strict=True)
    ]


def _kept(handle: QueueHandle, jobs: EncodedJobs, keys: Sequence[QueueKeys]) -> EncodedJobs:
    """As `kept`, for jobs of several queues."""
    if handle.payloads.passes(jobs.data):
        return jobs
    source = uuid4().hex
    return joined(
        [sealed(replace(handle, keys=there), picked(jobs, [row]), source, [row]) for row, there in enumerate(keys)]
    )


def _check_parents(
    handle: QueueHandle, jobs: EncodedJobs, keys: Sequence[QueueKeys], of: Sequence[str], numbers: Sequence[int]
) -> None:
    """As `parents.check_parents`, for jobs of several queues. A job can't be the parent of its follow-up."""
    by_queue: dict[QueueKeys, list[int]] = defaultdict(list)
    for row, parent_id in enumerate(listed(jobs.parent_id, jobs.n)):
        if parent_id is not None:
            by_queue[keys[row]].append(row)
    for there, rows in by_queue.items():
        some, own = picked(jobs, rows), replace(handle, keys=there)
        for position, parent in parents_of(own, some).items():
            if parent == handle.keys.job(of[rows[position]]):
                raise refused(numbers[rows[position]], "itself", parent)
        check_parents(own, some, [numbers[row] for row in rows])


def _jobs_of(encoded: EncodedJobs) -> list[dict[str, Any]]:
    columns = {name: listed(column, encoded.n) for name, column in encoded._asdict().items() if name != "n"}
    rows = zip(*columns.values(), strict=True)
    return [{name: value for name, value in zip(columns, row, strict=True) if value is not None} for row in rows]


def check_bounds(follow_ups: Sequence[FollowUp]) -> None:
    """Raises OptionError if one job has too many or too large follow-ups for one script."""
    if len(follow_ups) > MAX_FOLLOW_UPS:
        raise OptionError(
            f"expected at most {MAX_FOLLOW_UPS} follow-ups of a job, got {len(follow_ups)}: "
            "let a follow-up add the others, or add them with BullQueue.add_many"
        )
    size = sum(one.size for one in follow_ups)
    if size > MAX_SIZE:
        raise OptionError(
            f"expected the follow-ups of a job to have at most {MAX_SIZE:,} characters, got {size:,}: "
            "store large payloads elsewhere, and pass their location"
        )

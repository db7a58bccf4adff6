"""Follow-ups: jobs that are added by the call that settles another job, both or neither."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, Final, get_args
from uuid import uuid4

from spark_bull.core.dialects.encode.chunks import EncodedJobs, joined, listed, pack, picked
from spark_bull.core.dialects.encode.codec import carrying, encode
from spark_bull.core.errors import OptionError, expected
from spark_bull.core.keys import QueueKeys
from spark_bull.core.model.outcomes import MAX_FOLLOW_UPS, FollowUp, On
from spark_bull.core.queue.dispatch.add import kept
from spark_bull.core.queue.dispatch.parents import check_parents, parents_of, refused
from spark_bull.core.queue.handle.handle import QueueHandle, keys_of

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
        encoded = replace(encoded, parent_optional=True)
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
        [kept(replace(handle, keys=there), picked(jobs, [row]), source, [row]) for row, there in enumerate(keys)]
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
    columns = {f.name: listed(getattr(encoded, f.name), encoded.n) for f in fields(encoded) if f.name != "n"}
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

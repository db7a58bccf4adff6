"""Ids of jobs that a task of an at-least-once write gives again when Spark repeats it.

An id is made from the write, the partition, and the number and the content of the row. So a repeated task with the same
rows in the same order gives each job its id again, and the script leaves the job alone. Of rows in another order, some
are added again, and none is left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b
from typing import Any, Final

from spark_bull.core.dialects.encode.chunks import EncodedJobs, collapsed
from spark_bull.core.model.columns import listed

#: The bits of a UUID that are fixed, by the digit that they replace.
_VARIANTS: Final = {digit: "89ab"[int(digit, 16) & 3] for digit in "0123456789abcdef"}


def as_uuid(digits: str) -> str:
    """32 hexadecimal digits in the form of a UUID of version 4, as BullMQ's ids of jobs in flows."""
    d = digits
    return f"{d[:8]}-{d[8:12]}-4{d[13:16]}-{_VARIANTS[d[16]]}{d[17:20]}-{d[20:]}"


def digest(*parts: object) -> str:
    """32 hexadecimal digits that stand for plain values."""
    return blake2b(repr(parts).encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def row_values(rows: Mapping[str, Sequence[Any]], count: int) -> list[tuple[Any, ...]]:
    """The values of each row, by columns in the order of their names."""
    return list(zip(*(rows[name] for name in sorted(rows)), strict=True)) if rows else [()] * count


def with_own_ids(
    jobs: EncodedJobs, rows: Mapping[str, Sequence[Any]], queue: str, numbers: Sequence[int], source: str
) -> EncodedJobs:
    """The jobs, of which those with a parent and without an id of their own have one now.

    rows, numbers: as the jobs were encoded from them. source: names the write and the partition.
    """
    ids, parents = listed(jobs.job_id, jobs.n), listed(jobs.parent_id, jobs.n)
    own = [job_id is None and parent is not None for job_id, parent in zip(ids, parents, strict=True)]
    values = row_values(rows, jobs.n)
    new = [
        as_uuid(digest(source, queue, numbers[row], values[row])) if is_own else ids[row]
        for row, is_own in enumerate(own)
    ]
    return replace(jobs, job_id=new, own_id=collapsed(own))

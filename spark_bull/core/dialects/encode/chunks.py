"""Chunks of encoded jobs: columns of checked values, the shapes of their rows, split by size, packed with msgpack.

A packed chunk is a map of columns, by the names that the scripts read. Strings are packed raw, as the msgpack of Redis
has no binary type. Rows of one shape differ only in ids and times, which are stored beside the options of a job: they
share one options text. Whatever is unusual about a batch, above all a wrong value, has no shapes: then rows are encoded
one by one, which finds the errors.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from hashlib import blake2b
from typing import Any, Final, NamedTuple, Optional, TypeVar, Union

import msgpack

from spark_bull.core.clock import LAST_ETA_MS, epoch_ms
from spark_bull.core.dialects.terms import DEDUPLICATION
from spark_bull.core.errors import check_encodable

#: Properties of which each row has its own value, and the types of their values.
OWN: Final[Mapping[str, frozenset[type]]] = {
    "jobId": frozenset({str, int}),
    "delay": frozenset({int}),
    "runAt": frozenset({int}),
    "timestamp": frozenset({int}),
    DEDUPLICATION: frozenset({str}),
}
#: Properties of options that rows of a shape have in common, and the types of their values.
_KEPT_IN_SHAPE: Final = frozenset(
    {"priority", "attempts", "backoff", "lifo", "removeOnComplete", "removeOnFail", "lockMs"}
)
_SCALARS: Final = frozenset({bool, int, float, str, Decimal})


class Shapes(NamedTuple):
    """first: the position of the first row of each shape. of_row: the shape of each row; None if all have one."""

    first: list[int]
    of_row: list[int] | None


def shapes_of(columns: Mapping[str, Sequence[Any]], delay: int) -> Shapes | None:
    """The shapes of rows that have these properties; None if they have to be encoded one by one.

    columns: lists of equal length, not empty; None means not given. delay: for rows without one, ms.
    """
    parts: list[Sequence[Hashable]] = []
    for name, column in columns.items():
        types = set(map(type, column)) - {type(None)}
        if name in OWN:
            if not types <= OWN[name] or "" in column:
                return None
            if None in column:
                parts.append([value is not None for value in column])
        elif name not in _KEPT_IN_SHAPE or len(types) > 1 or not types <= _SCALARS:
            return None
        elif any(value != column[0] for value in column):
            parts.append(column)
    if not _are_in_range(columns, delay):
        return None
    if not parts:
        return Shapes([0], None)
    return _numbered(list(zip(*parts, strict=True)))


def _are_in_range(columns: Mapping[str, Sequence[Any]], delay: int) -> bool:
    """Whether all times are certainly valid."""
    delays, run_ats, timestamps = (
        [value for value in columns.get(name, ()) if value is not None] for name in ("delay", "runAt", "timestamp")
    )
    latest = max([epoch_ms(), *timestamps]) + max([delay, *delays])
    return min(delays, default=0) >= 0 and max([latest, *run_ats]) <= LAST_ETA_MS


def _numbered(keys: list[tuple[Hashable, ...]]) -> Shapes:
    numbers: dict[tuple[Hashable, ...], int] = {}
    of_row = [numbers.setdefault(key, len(numbers)) for key in keys]
    first: list[int] = []
    for position, number in enumerate(of_row):
        if number == len(first):
            first.append(position)
            if len(first) == len(numbers):
                break
    return Shapes(first, of_row)


def listed(column: Any, count: int) -> list[Any]:
    """The column as a list of `count` values."""
    return column if isinstance(column, list) else [column] * count


def converted(column: Any, convert: Callable[[Any], Any]) -> Any:
    """The column with `convert` applied; a single value stays a single value."""
    return [convert(value) for value in column] if isinstance(column, list) else convert(column)


T = TypeVar("T")
#: The values of a property: one for all jobs, a list with one for each, or None if no job has the property.
Column = Union[T, list[Optional[T]], None]  # noqa: UP007, UP045


class EncodedJobs(NamedTuple):
    """`n` encoded jobs, column by column.

    data: payloads, JSON text. opts: options, JSON text. marked: whether some options have marks; see `base.MARKS`.
    delay: ms; run_at, timestamp: ms since 1970. deduplication: rules of deduplication ids, JSON text, unless simple.
    own_id: whether only an earlier attempt of the same task can have given the id, see `own_ids`.
    parent_queue, parent_id: the parents; on_failure: flags for the failure of a child, see `parents.FAILURE_FLAGS`.
    waits_for_children: whether the job has children, for which it waits. parent_optional: whether jobs are added
    without their parents if these are gone. sequence: keys of jobs that run one after the other; sequence_failure: the
    flag for their failure, as in `on_failure`. expire_after: ms after the creation, expire_at: ms since 1970.
    stalled_counter: with which a job begins.
    """

    n: int
    data: list[str]
    name: Column[str] = None
    opts: Column[str] = None
    marked: bool = False
    job_id: Column[str] = None
    own_id: Column[bool] = None
    delay: Column[int] = None
    run_at: Column[int] = None
    timestamp: Column[int] = None
    priority: Column[int] = None
    lifo: Column[bool] = None
    attempts: Column[int] = None
    deduplication_id: Column[str] = None
    deduplication: Column[str] = None
    parent_queue: Column[str] = None
    parent_id: Column[str] = None
    on_failure: Column[str] = None
    waits_for_children: Column[bool] = None
    parent_optional: Column[bool] = None
    sequence: Column[str] = None
    sequence_failure: Column[str] = None
    expire_after: Column[int] = None
    expire_at: Column[int] = None
    stalled_counter: Column[int] = None


#: Columns other than the payload, which each job has.
_SHARED: Final = [name for name in EncodedJobs._fields if name not in ("n", "data", "marked")]


class PackedChunk(NamedTuple):
    """A chunk, and the number of its jobs."""

    rows: int
    packed: bytes


#: Payloads that are measured together at first.
_FIRST_MEASURED: Final = 4


@dataclass
class ChunkBuilder:
    """Collects encoded jobs and splits them into packed chunks of limited size."""

    chunk_size: int
    chunk_bytes: int
    _rows: int = field(default=0, init=False)
    _bytes: int = field(default=0, init=False)
    _parts: list[EncodedJobs] = field(default_factory=list, init=False)

    @property
    def gathered(self) -> int:
        """Bytes of payload that are not in a chunk yet."""
        return self._bytes

    def add(self, jobs: EncodedJobs) -> Iterator[PackedChunk]:
        """Adds jobs; yields each chunk that is full."""
        start = 0
        while start < jobs.n:
            stop, size = self._fitting(jobs.data, start)
            if stop == start:
                yield self._cut()
                continue
            self._parts.append(sliced(jobs, start, stop))
            self._rows += stop - start
            self._bytes += size
            start = stop

    def _fitting(self, texts: Sequence[str], start: int) -> tuple[int, int]:
        """The end of the payloads from `start` on that fit into the chunk, and their bytes. An empty chunk fits one."""
        most = min(len(texts), start + self.chunk_size - self._rows)
        stop, size, count = start, self._bytes, _FIRST_MEASURED
        while stop < most:
            # Small payloads are measured many at a time, large ones not long before they fill the chunk.
            behind = min(most, stop + count)
            more = len("".join(texts[stop:behind]).encode())
            if size + more > self.chunk_bytes:
                break
            stop, size, count = behind, size + more, 4 * count
        while stop < most:
            more = len(texts[stop].encode())
            if size + more > self.chunk_bytes and (self._rows or stop > start):
                break
            stop, size = stop + 1, size + more
        return stop, size - self._bytes

    def flush(self) -> Iterator[PackedChunk]:
        """Yields the remaining jobs as a chunk, if there are any."""
        if self._rows:
            yield self._cut()

    def _cut(self) -> PackedChunk:
        chunk = joined(self._parts)
        rows = self._rows
        self._rows, self._bytes, self._parts = 0, 0, []
        return PackedChunk(rows, pack(chunk))


def sliced(jobs: EncodedJobs, start: int, stop: int) -> EncodedJobs:
    """Jobs start..stop, the last one excluded."""
    columns = {name: getattr(jobs, name) for name in _SHARED}
    lists: dict[str, Any] = {name: column[start:stop] for name, column in columns.items() if isinstance(column, list)}
    return jobs._replace(n=stop - start, data=jobs.data[start:stop], **lists)


def picked(jobs: EncodedJobs, positions: Sequence[int]) -> EncodedJobs:
    """The jobs at these positions."""
    parts = [sliced(jobs, position, position + 1) for position in positions]
    return joined(parts) if parts else sliced(jobs, 0, 0)


def joined(parts: Sequence[EncodedJobs]) -> EncodedJobs:
    """The jobs of all parts; at least one."""
    if len(parts) == 1:
        return parts[0]
    return EncodedJobs(
        n=sum(part.n for part in parts),
        data=[text for part in parts for text in part.data],
        marked=any(part.marked for part in parts),
        **{name: _joined_column(parts, name) for name in _SHARED},
    )


def _joined_column(parts: Sequence[EncodedJobs], name: str) -> Any:
    columns = [getattr(part, name) for part in parts]
    if all(not isinstance(column, list) and column == columns[0] for column in columns):
        return columns[0]
    return [value for part, column in zip(parts, columns, strict=True) for value in listed(column, part.n)]


def collapsed(values: Sequence[T | None]) -> Column[T]:
    """The value if all are equal, None if there is none, else the list."""
    first = values[0] if values else None
    return first if all(value == first for value in values) else [*values]


def pack(jobs: EncodedJobs) -> bytes:
    """A chunk, packed for the scripts. Raises OptionError for a text that UTF-8 can't encode."""
    return packed_map(columns_of(jobs))


def columns_of(jobs: EncodedJobs) -> dict[str, Any]:
    """The columns of a chunk that are given, and its number of jobs."""
    return {name: column for name, column in jobs._asdict().items() if column is not None}


def packed_map(given: Mapping[str, Any]) -> bytes:
    """A map, packed for the scripts. Raises OptionError for a text that UTF-8 can't encode."""
    try:
        packed: bytes = msgpack.packb(given, use_bin_type=False)
    except UnicodeEncodeError:
        check_encodable("chunk", given)
        raise
    return packed


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
    """The jobs; each with a parent and without an id of its own has an id now, the same when Spark repeats the task.

    The id is made from the write, the partition, and the number and the content of the row. So a repeated task with the
    same rows in the same order gives each job its id again, and the script leaves the job alone. Of rows in another
    order, some are added again, and none is left out.

    rows, numbers: as the jobs were encoded from them. source: names the write and the partition.
    """
    ids, parents = listed(jobs.job_id, jobs.n), listed(jobs.parent_id, jobs.n)
    own = [job_id is None and parent is not None for job_id, parent in zip(ids, parents, strict=True)]
    values = row_values(rows, jobs.n)
    new = [
        as_uuid(digest(source, queue, numbers[row], values[row])) if is_own else ids[row]
        for row, is_own in enumerate(own)
    ]
    return jobs._replace(job_id=new, own_id=collapsed(own))

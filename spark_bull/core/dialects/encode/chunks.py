"""Chunks of encoded jobs: columns of checked values, split by size, packed with msgpack.

A packed chunk is a map of columns, by the names that the scripts read. Strings are packed raw, as the msgpack of Redis
has no binary type.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final, NamedTuple, Optional, TypeVar, Union

import msgpack

from spark_bull.core.errors import check_encodable
from spark_bull.core.model.columns import listed

T = TypeVar("T")
#: The values of a property: one for all jobs, a list with one for each, or None if no job has the property.
Column = Union[T, list[Optional[T]], None]  # noqa: UP007, UP045


@dataclass(frozen=True)
class EncodedJobs:
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
_SHARED: Final = [f.name for f in fields(EncodedJobs) if f.name not in ("n", "data", "marked")]


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
    return replace(jobs, n=stop - start, data=jobs.data[start:stop], **lists)


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
    columns = {f.name: getattr(jobs, f.name) for f in fields(jobs)}
    return {name: column for name, column in columns.items() if column is not None}


def packed_map(given: Mapping[str, Any]) -> bytes:
    """A map, packed for the scripts. Raises OptionError for a text that UTF-8 can't encode."""
    return packed_value("chunk", given)


def packed_value(name: str, value: object) -> bytes:
    """A value, packed for the scripts. Raises OptionError, with `name`, for a text that UTF-8 can't encode."""
    try:
        packed: bytes = msgpack.packb(value, use_bin_type=False)
    except UnicodeEncodeError:
        check_encodable(name, value)
        raise
    return packed

"""Flows: trees of jobs, encoded level by level, parents before their children."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from os import urandom
from typing import Any, Final, NamedTuple, overload

from spark_bull.core.dialects.base import Dialect
from spark_bull.core.dialects.encode.chunks import (
    EncodedJobs,
    as_uuid,
    collapsed,
    digest,
    listed,
    picked,
    row_values,
    sliced,
)
from spark_bull.core.dialects.encode.codec import encode
from spark_bull.core.dialects.terms import DEDUPLICATION, PARENT
from spark_bull.core.errors import OptionError

#: Maximum number of jobs, and of characters of payload, of one flow, as one script adds it.
MAX_JOBS: Final = 1_000
MAX_FLOW_SIZE: Final = 2 << 20
#: Stands for the parent of a job, which is set after the job was encoded.
_SOME: Final = {"queue": "-", "id": "-"}


@dataclass(frozen=True)
class Level:
    """The jobs of flows at one distance from the roots, in the order of the flows.

    rows: the properties of the jobs, as for `codec.encode`. queues: names of their queues. parents: for each job the
    position of its parent in the level above; none for roots. on_failure: values of `parents.ON_FAILURE`, or None.
    """

    rows: Mapping[str, Sequence[Any]]
    queues: Sequence[str]
    parents: Sequence[int] = ()
    on_failure: Sequence[str | None] = ()

    def __len__(self) -> int:
        return len(self.queues)


class Group(NamedTuple):
    """Jobs of one level and one queue. flows: the number of the flow of each job. order: numbers of the jobs, from the
    first job of the first level on. checked: whether a script has to check that it can add the job.
    """

    queue: str
    is_root: bool
    jobs: EncodedJobs
    flows: list[int]
    order: list[int]
    checked: list[bool]

    def part(self, first: int, last: int) -> Group:
        """The jobs of the flows `first`..`last`, the last one excluded."""
        start, stop = bisect_left(self.flows, first), bisect_left(self.flows, last)
        return Group(
            self.queue,
            self.is_root,
            sliced(self.jobs, start, stop),
            self.flows[start:stop],
            self.order[start:stop],
            self.checked[start:stop],
        )

    def checked_jobs(self) -> Group:
        """The jobs that a script has to check."""
        rows = [row for row, is_checked in enumerate(self.checked) if is_checked]
        return Group(
            self.queue,
            self.is_root,
            picked(self.jobs, rows),
            [self.flows[row] for row in rows],
            [self.order[row] for row in rows],
            [True] * len(rows),
        )


class Flows:
    """The flows whose jobs `levels` have, encoded. Raises OptionError or DialectError."""

    def __init__(
        self,
        dialect: Dialect,
        levels: Sequence[Level],
        defaults: Mapping[str, Any],
        numbers: Sequence[int],
        source: str | None = None,
    ) -> None:
        """numbers: flow numbers. source: names the task whose rows they are, which gives the jobs their ids again
        when it is repeated; None: ids are random.
        """
        dialect.require("flows")
        self._dialect = dialect
        self._levels = levels
        self._defaults = defaults
        self._numbers = numbers
        #: Ids of the jobs, level by level.
        self.ids: list[list[str]] = []
        self._flows: list[Sequence[int]] = []
        #: The jobs, parents before children.
        self.groups: list[Group] = []
        self._taken: set[tuple[int, str, str]] = set()
        for number, level in enumerate(levels):
            above: Sequence[int] = self._flows[-1] if number else range(len(level))
            self._flows.append([above[parent] for parent in level.parents] if number else above)
        self._digests = None if source is None else self._contents(source)
        for number, level in enumerate(levels):
            self.ids.append([""] * len(level))
            self.groups += self._encoded(number)
        self._check_sizes()

    def __len__(self) -> int:
        return len(self._levels[0])

    def make_parents_optional(self) -> None:
        """Adds flows also if the parent of the first job is gone."""
        self.groups = [
            group._replace(jobs=group.jobs._replace(parent_optional=True)) if group.is_root else group
            for group in self.groups
        ]

    def label(self, order: int) -> str:
        """Names a job for errors: the number of its flow, and the path to it."""
        for number, level in enumerate(self._levels):
            if order < len(level):
                return self._labels(number)[order]
            order -= len(level)
        raise IndexError(order)

    def chunks(self, most_jobs: int, most_size: int) -> Iterator[tuple[int, list[Group]]]:
        """Cuts the flows into chunks of at most this number of jobs and characters of payload, or one flow: the
        number of jobs, and the groups that have some.
        """
        first = jobs = size = 0
        for flow, (count, length) in enumerate(zip(self._counts, self._sizes, strict=True)):
            if jobs and (jobs + count > most_jobs or size + length > most_size):
                yield jobs, self._parts(first, flow)
                first, jobs, size = flow, 0, 0
            jobs, size = jobs + count, size + length
        if jobs:
            yield jobs, self._parts(first, len(self))

    def _parts(self, first: int, last: int) -> list[Group]:
        parts = [group.part(first, last) for group in self.groups]
        return [part for part in parts if part.flows]

    def _labels(self, number: int, positions: Sequence[int] | None = None) -> Sequence[str]:
        return Labels([level.parents for level in self._levels[1 : number + 1]], self._numbers, positions)

    def _encoded(self, number: int) -> Iterator[Group]:
        """Encodes a level, whose parents are, and notes the ids of its jobs."""
        level, rows = self._levels[number], self._rows(number)
        defaults = {**self._defaults, PARENT: _SOME} if number else self._defaults
        order = sum(len(above) for above in self._levels[:number])
        has_children = set(self._levels[number + 1].parents) if number + 1 < len(self._levels) else set()
        by_queue: dict[str, list[int]] = defaultdict(list)
        for position, queue in enumerate(level.queues):
            by_queue[queue].append(position)
        for queue, positions in by_queue.items():
            some = {name: [column[i] for i in positions] for name, column in rows.items()}
            labels = self._labels(number, positions)
            jobs = encode(self._dialect, some, defaults, labels)
            given = listed(jobs.job_id, jobs.n)
            flows = [self._flows[number][i] for i in positions]
            if number:
                jobs = self._with_parents(number, jobs, positions, labels)
            ids = new_ids(len(positions)) if self._digests is None else self._own_ids(number, positions)
            own = None if self._digests is None else collapsed([job_id is None for job_id in given])
            if jobs.job_id is not None:
                self._check_ids(queue, given, flows, labels)
                ids = [new if job_id is None else job_id for job_id, new in zip(given, ids, strict=True)]
            for position, job_id in zip(positions, ids, strict=True):
                self.ids[number][position] = job_id
            waits = collapsed([i in has_children for i in positions]) if has_children else None
            jobs = jobs._replace(job_id=[*ids], own_id=own, waits_for_children=waits)
            _check_deduplication(jobs, labels)
            outer = listed(None if number else jobs.parent_id, jobs.n)
            checked = [a is not None or b is not None for a, b in zip(given, outer, strict=True)]
            yield Group(queue, number == 0, jobs, flows, [order + i for i in positions], checked)

    def _contents(self, source: str) -> list[str]:
        """Digests of the source, and of the number and all jobs of each flow."""
        found = [digest(source, number) for number in self._numbers]
        for level, flows in zip(self._levels, self._flows, strict=True):
            values = row_values(level.rows, len(level))
            for position, flow in enumerate(flows):
                found[flow] = digest(found[flow], level.queues[position], values[position])
        return found

    def _own_ids(self, number: int, positions: Sequence[int]) -> list[str]:
        """The ids of jobs of a level, by their places in their flows."""
        flows, digests = self._flows[number], self._digests or []
        places = [(flows[position], position - bisect_left(flows, flows[position])) for position in positions]
        return [as_uuid(digest(digests[flow], number, place)) for flow, place in places]

    def _rows(self, number: int) -> Mapping[str, Sequence[Any]]:
        """The properties of a level, with those that refer to parents in the level above."""
        level = self._levels[number]
        if number == 0:
            return level.rows
        for position, parent in enumerate(level.rows.get(PARENT, ())):
            if parent is not None:
                raise _second_parent(self._labels(number)[position])
        if all(policy is None for policy in level.on_failure):
            return level.rows
        # The others have a parent by the defaults.
        policies = [None if policy is None else {**_SOME, "onFailure": policy} for policy in level.on_failure]
        return {**level.rows, PARENT: policies}

    def _with_parents(
        self, number: int, jobs: EncodedJobs, positions: Sequence[int], labels: Sequence[str]
    ) -> EncodedJobs:
        """Sets the parents of encoded jobs. Raises OptionError for one with a parent of its own in its options."""
        if jobs.parent_id != _SOME["id"]:
            for position, parent_id in enumerate(listed(jobs.parent_id, jobs.n)):
                if parent_id != _SOME["id"]:
                    raise _second_parent(labels[position])
        above, ids, parents = self._levels[number - 1], self.ids[number - 1], self._levels[number].parents
        return jobs._replace(
            parent_queue=collapsed([above.queues[parents[i]] for i in positions]),
            parent_id=[ids[parents[i]] for i in positions],
        )

    def _check_ids(self, queue: str, given: Sequence[str | None], flows: Sequence[int], labels: Sequence[str]) -> None:
        """Raises OptionError for two jobs of one flow with the same id."""
        for position, (job_id, flow) in enumerate(zip(given, flows, strict=True)):
            if job_id is None:
                continue
            if (flow, queue, job_id) in self._taken:
                raise OptionError(
                    f"row {labels[position]}: expected an id that no other job of the flow has, got: {job_id!r} twice"
                )
            self._taken.add((flow, queue, job_id))

    @cached_property
    def _counts(self) -> list[int]:
        """Number of jobs by flow."""
        counts = [0] * len(self)
        for flows in self._flows:
            for flow in flows:
                counts[flow] += 1
        return counts

    @cached_property
    def _sizes(self) -> list[int]:
        """Characters of payload by flow."""
        sizes = [0] * len(self)
        for level, flows in zip(self._levels, self._flows, strict=True):
            for flow, text in zip(flows, level.rows["data"], strict=True):
                sizes[flow] += len(text)
        return sizes

    def _check_sizes(self) -> None:
        for flow, (count, size) in enumerate(zip(self._counts, self._sizes, strict=True)):
            if count > MAX_JOBS or size > MAX_FLOW_SIZE:
                raise OptionError(
                    f"row {self._numbers[flow]}: expected a flow of at most {MAX_JOBS:,} jobs and {MAX_FLOW_SIZE:,} "
                    f"characters of payload, got {count:,} jobs and {size:,} characters: add the parent first, and "
                    f"further children with `{PARENT}`"
                )


def new_ids(count: int) -> list[str]:
    """Random UUIDs, of version 4."""
    texts = urandom(16 * count).hex()
    return [as_uuid(texts[start : start + 32]) for start in range(0, 32 * count, 32)]


def _second_parent(label: str) -> OptionError:
    return OptionError(f"row {label}: expected no `{PARENT}` of a child in a flow, which has one: leave it out")


def _check_deduplication(jobs: EncodedJobs, labels: Sequence[str]) -> None:
    """Raises OptionError for a job with children that may be deduplicated: its children would have no parent."""
    if jobs.deduplication_id is None or jobs.waits_for_children is None:
        return
    columns = listed(jobs.deduplication_id, jobs.n), listed(jobs.waits_for_children, jobs.n)
    for position, (deduplication_id, waits) in enumerate(zip(*columns, strict=True)):
        if deduplication_id is not None and waits:
            raise OptionError(
                f"row {labels[position]}: expected no `{DEDUPLICATION}` of a job with children, which would lose their "
                "parent: leave it out, or give the job a `jobId`"
            )


class Labels(Sequence[str]):
    """Names jobs of a level for errors, such as `3, children[0], children[2]`."""

    def __init__(
        self, parents: Sequence[Sequence[int]], numbers: Sequence[int], positions: Sequence[int] | None = None
    ) -> None:
        """parents: for each level from the second to this one, the positions of the parents of its jobs in the level
        above. numbers: the number of each flow. positions: the jobs of this level to name; None: all.
        """
        self._parents, self._numbers = parents, numbers
        self._positions = range(len(parents[-1] if parents else numbers)) if positions is None else positions

    def __len__(self) -> int:
        return len(self._positions)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[str]: ...
    def __getitem__(self, index: int | slice) -> str | Sequence[str]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        position, path = self._positions[index], ""
        for parents in reversed(self._parents):
            parent = parents[position]
            path = f", children[{position - bisect_left(parents, parent)}]{path}"
            position = parent
        return f"{self._numbers[position]}{path}"

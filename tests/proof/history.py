"""Histories: what producers, workers and readers asked and saw, with the times of begin and end.

All processes of a history run on one machine, and its monotonic clock gives their times (ns). A call whose end nobody
saw has no end: it may have taken effect at any time after its begin, or not at all.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import monotonic_ns
from typing import Literal

#: write: rows of one queue. recover: writes that were finished. claim, extend, settle: jobs under one lock token.
#: lapse: locks that ended before their time. retry: finished jobs that wait again. deliver: results, in order.
Act = Literal["write", "recover", "claim", "extend", "settle", "lapse", "retry", "deliver"]
Kind = Literal["lost", "twice", "stuck", "out of order", "two holders"]


@dataclass
class Op:
    """One call. jobs: rows, or ids of writes, for which the answer is true. token: lock token, or identity of a write.

    given: what was asked, if that is more than `jobs`. at: position of the first result.
    """

    act: Act
    party: str
    token: str = ""
    queue: str = ""
    given: tuple[str, ...] = ()
    jobs: tuple[str, ...] = ()
    answer: str = ""
    at: int = 0
    lock_ms: int = 0
    begin: int = 0
    end: int | None = None


@dataclass(frozen=True)
class Violation:
    """What no order of the calls explains."""

    kind: Kind
    what: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.what}"


@dataclass
class History:
    """The calls, in the order of their begins, and the jobs that are in each queue at the end: rows by state."""

    ops: list[Op] = field(default_factory=list)
    left: dict[str, dict[str, list[str]]] = field(default_factory=dict)

    @contextmanager
    def op(self, op: Op) -> Iterator[Op]:
        """Records a call; the block completes `op` with what it saw. After an exception the call has no end."""
        op.begin = monotonic_ns()
        self.ops.append(op)
        yield op
        op.end = monotonic_ns()

    def of(self, *acts: Act) -> list[Op]:
        return [op for op in self.ops if op.act in acts]

    def rows(self, queue: str) -> list[str]:
        """The rows of all states of a queue."""
        return [row for rows in self.left.get(queue, {}).values() for row in rows]

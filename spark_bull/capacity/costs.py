"""What one job costs, as `python -m benchmarks.scale` measures it; docs/concepts/capacity.md shows these tables.

CPU times are those of one core of the machine on which they were measured, which the page names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

#: The command that measures all constants of this module.
MEASURED_BY: Final = "python -m benchmarks.scale"


@dataclass(frozen=True)
class Line:
    """A cost that grows with the payload: `base`, and `per_kb` for each 1,000 bytes."""

    base: float
    per_kb: float

    def at(self, payload: int) -> float:
        """The cost of a job with a payload of so many bytes."""
        return self.base + self.per_kb * payload / 1_000


@dataclass(frozen=True)
class JobCost:
    """What a verb costs per job: CPU time in µs of Redis, of all Python processes and of the JVM; and the bytes that
    Redis receives and sends.
    """

    redis: Line
    python: Line
    jvm: Line
    network: Line


@dataclass(frozen=True)
class FixedCost:
    """What something costs that happens once for many jobs: CPU time in ms of Redis, of Python and of the JVM."""

    redis: float
    python: float
    jvm: float


#: A life of a job has each verb once.
VERBS: Final[Mapping[str, JobCost]] = {
    "dispatch": JobCost(Line(7.2, 2.6), Line(1.4, 4.1), Line(0.5, 1.6), Line(7, 1_000)),
    "process": JobCost(Line(21.3, 2.6), Line(12.6, 1.6), Line(0.4, 0), Line(39, 1_000)),
    "collect": JobCost(Line(6.8, 1.2), Line(9.0, 3.6), Line(9.4, 3.1), Line(394, 1_000)),
    "clean": JobCost(Line(16.7, 4.2), Line(2.7, 0.1), Line(0, 0), Line(17, 0)),
}
#: Python's CPU of the driver while it adds staged jobs, in µs: a part of what `dispatch` costs.
COMMIT: Final = Line(1.2, 0)
#: The longest field that Redis keeps in the compact form of a HASH, in bytes: hash-max-listpack-value of its
#: configuration, before Redis 7 hash-max-ziplist-value. One longer field makes the whole HASH a table.
COMPACT_UP_TO: Final = 64
#: Memory of Redis for a job in the compact form, by its state, in bytes.
COMPACT_MEMORY: Final[Mapping[str, Line]] = {"waiting": Line(213, 990), "completed": Line(433, 997)}
#: The same for a job that is a table.
MEMORY: Final[Mapping[str, Line]] = {"waiting": Line(742, 998), "completed": Line(1_360, 1_000)}
#: A partition of a write, and a micro-batch of a stream that dispatches or collects.
FIXED: Final[Mapping[str, FixedCost]] = {
    "partition": FixedCost(0.4, 4.8, 11),
    "dispatching batch": FixedCost(2.5, 180, 140),
    "collecting batch": FixedCost(2.2, 110, 160),
}

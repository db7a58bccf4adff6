"""Adapts the number of jobs per micro-batch to the backlog and to their duration.

A micro-batch has a fixed cost, but its jobs are claimed together: other workers cannot take them until it ends.
"""

from __future__ import annotations

from typing import Final

#: Maximum duration of a micro-batch that is expected, s.
TARGET_S: Final = 5.0
#: The limit with which a query begins, and the highest one.
LEAST, MOST = 10_000, 100_000
#: How many times the jobs of the last batch the next one may have: its duration is expected to be as many times longer.
GROWTH: Final = 10
#: Part of its largest size with which a batch begins whose tasks would wait for more jobs: a batch has a fixed cost.
WORTHWHILE: Final = 4


class BatchSize:
    """The maximum number of jobs of the next batch, `current`: `fixed`, or else between `least` and `most`."""

    def __init__(self, fixed: int | None = None) -> None:
        self.most = fixed or MOST
        self.least = fixed or LEAST
        self.current = self.least

    @property
    def enough(self) -> int:
        """The number of jobs with which a batch begins rather than wait for more."""
        return max(self.least, self.current // WORTHWHILE)

    def update(self, jobs: int, seconds: float) -> None:
        """Adapts to the last batch: its number of jobs and its duration, s.

        One that was not full can show that the jobs are quick, but not that they are slow, unless it took too long: its
        fixed cost has a larger share.
        """
        fitting = self.most if seconds <= 0 else int(TARGET_S * jobs / seconds)
        fitting = max(self.least, min(fitting, GROWTH * jobs, self.most))
        shows_slowness = jobs >= self.current or seconds > TARGET_S
        self.current = fitting if shows_slowness else max(self.current, fitting)

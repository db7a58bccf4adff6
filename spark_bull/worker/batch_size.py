"""Adapts the number of jobs per micro-batch to the backlog and to their duration.

A micro-batch has a fixed cost, but its jobs are claimed together: other workers cannot take them until it ends.
"""

from __future__ import annotations

from typing import Final

#: Target duration of a full micro-batch, s.
TARGET_S: Final = 5.0
#: The limit with which a query begins, and the highest one.
LEAST, MOST = 10_000, 50_000


class BatchSize:
    """The maximum number of jobs of the next batch, `current`: `fixed`, or else between LEAST and MOST."""

    def __init__(self, fixed: int | None = None) -> None:
        self.most = fixed or MOST
        self._least = fixed or LEAST
        self.current = self._least

    def update(self, jobs: int, seconds: float) -> None:
        """Adapts to the last batch: its number of jobs and its duration, s. Only a full batch shows a backlog."""
        if jobs >= self.current:
            fitting = self.most if seconds <= 0 else int(TARGET_S * jobs / seconds)
            self.current = max(self._least, min(fitting, 2 * self.current, self.most))

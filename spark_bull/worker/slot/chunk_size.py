"""Adapts the number of jobs per claim to their duration, so that slow jobs stay available to other workers."""

from __future__ import annotations

from typing import Final

#: Target duration of a chunk of jobs that run one by one, s.
TARGET_S: Final = 0.2
_FIRST: Final = 16


class ChunkSize:
    """The number of jobs to claim next, `current`: at most `maximum`, and at most twice the previous number."""

    def __init__(self, maximum: int) -> None:
        self._maximum = maximum
        self.current = min(_FIRST, maximum)

    def update(self, jobs: int, seconds: float) -> None:
        """Adapts to the last chunk: its number of jobs and its duration."""
        fitting = self._maximum if seconds <= 0 else int(TARGET_S * jobs / seconds)
        self.current = max(1, min(fitting, 2 * self.current, self._maximum))

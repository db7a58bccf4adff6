"""Adapts the number of jobs per claim to their duration, so that slow jobs stay available to other workers."""

from __future__ import annotations

from typing import Final

#: Target duration of a chunk of jobs that run one by one, and of one that a UDF processes at once, s.
TARGET_S: Final = 0.2
UDF_TARGET_S: Final = 1.0
_FIRST: Final = 16


class ChunkSize:
    """The number of jobs to claim next, `current`: at most `maximum`, and at most twice the previous number.

    least: the number with which it begins, and that it never goes below; None: it begins with some, down to 1.
    """

    def __init__(self, maximum: int, target_s: float = TARGET_S, least: int | None = None) -> None:
        self._maximum = maximum
        self._target_s = target_s
        self._least = 1 if least is None else min(least, maximum)
        self.current = min(_FIRST, maximum) if least is None else self._least

    def update(self, jobs: int, seconds: float) -> None:
        """Adapts to the last chunk: its number of jobs and its duration."""
        fitting = self._maximum if seconds <= 0 else int(self._target_s * jobs / seconds)
        self.current = max(self._least, min(fitting, 2 * self.current, self._maximum))

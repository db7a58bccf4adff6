"""How many jobs to claim at a time: many quick ones, few slow ones, so that other workers get their share."""

from __future__ import annotations

from typing import Final

#: What a chunk of jobs that run one by one is to take, s.
TARGET_S: Final = 0.2
_FIRST: Final = 16


class ChunkSize:
    """`now` jobs fit the target, as far as the chunks before tell; it doubles at most from one chunk to the next."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.now = min(_FIRST, most)

    def took(self, jobs: int, seconds: float) -> None:
        """Learns from a chunk of so many jobs that took so long."""
        fitting = self._most if seconds <= 0 else int(TARGET_S * jobs / seconds)
        self.now = max(1, min(fitting, 2 * self.now, self._most))

"""A queue with a key of the wrong type: its calls fail until the key is repaired; other queues are not affected."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from spark_bull.core.clock import monotonic_s

#: Interval at which a damaged queue is tried again, s.
RETRY_S: Final = 1.0


class Damage:
    """What keeps calls for one queue from succeeding. error: its text; "": nothing.

    log: gets the text once, until it changes, and "" when the damage is repaired.
    """

    def __init__(self, log: Callable[[str], None]) -> None:
        self.error = ""
        self._log = log
        self._retry_at = 0.0

    @property
    def rest_s(self) -> float:
        """The time until the queue is tried again, s; 0: at once."""
        return max(0.0, self._retry_at - monotonic_s())

    def begin(self, error: BaseException) -> None:
        """A call has failed: the queue rests for RETRY_S."""
        self._retry_at = monotonic_s() + RETRY_S
        self._change(str(error))

    def end(self) -> None:
        """A call has succeeded."""
        self._retry_at = 0.0
        self._change("")

    def _change(self, error: str) -> None:
        if error != self.error:
            self.error = error
            self._log(error)

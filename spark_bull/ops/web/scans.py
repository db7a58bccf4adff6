"""Keeps what is found by scanning all keys of the database."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from threading import Lock
from typing import Final, Generic, TypeVar

from spark_bull.core.clock import monotonic_s

T = TypeVar("T")
#: The shortest time that it is kept, s, and how many times as long as the scan has taken: Redis scans for a twentieth
#: of the time at most.
LEAST_S: Final = 15.0
_TIMES: Final = 20


class Kept(Generic[T]):
    """What a scan finds: some seconds old at most, or longer in a large database. Thread-safe."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._until_s = -inf

    def get(self, scan: Callable[[], T]) -> T:
        """What was kept, else what `scan` finds."""
        with self._lock:
            started = monotonic_s()
            if started > self._until_s:
                self._found = scan()
                ended = monotonic_s()
                self._until_s = ended + max(LEAST_S, _TIMES * (ended - started))
            return self._found

    def forget(self) -> None:
        """Scans again for the next call."""
        with self._lock:
            self._until_s = -inf

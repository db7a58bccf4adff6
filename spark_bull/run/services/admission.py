"""Which rows begin a micro-batch of a query, and when."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from spark_bull.core.clock import monotonic_s

P = TypeVar("P")


class Admission:
    """A batch waits for `least` rows, `delay_ms` at most from the first of them on, and has up to `most_bytes`.

    It lives as long as the query's process. most_bytes: None for any number.
    """

    def __init__(self, least: int, delay_ms: int, most_bytes: int | None = None) -> None:
        self.least = least
        self._delay_s = delay_ms / 1_000
        self._most_bytes = most_bytes
        self._since: float | None = None
        #: Whether the last batch had no room for rows for which nothing has to wait any more.
        self._is_cut = False

    def waits(self, rows: int) -> bool:
        """Whether a batch for which these are there waits for more."""
        now, since = monotonic_s(), self._since
        self._since = None
        if self._is_cut or not 0 < rows < self.least:
            return False
        since = now if since is None else since
        if now - since >= self._delay_s:
            return False
        self._since = since
        return True

    def cut(self, spans: Mapping[str, tuple[P, P]], end_of: Callable[[str, P, P, int], P]) -> dict[str, P]:
        """The ends of the next batch by queue. spans: the first and the last position that it could have.

        end_of: the last position between two others up to which the rows have a number of bytes, after one row at
        least: a large one would keep the others.
        """
        if self._most_bytes is None:
            return {queue: stop for queue, (_, stop) in spans.items()}
        share = self._most_bytes // max(1, sum(start != stop for start, stop in spans.values()))
        ends = {
            queue: stop if start == stop else end_of(queue, start, stop, share)
            for queue, (start, stop) in spans.items()
        }
        self._is_cut = any(ends[queue] != stop for queue, (_, stop) in spans.items())
        return ends

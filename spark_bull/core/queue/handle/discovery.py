"""Arguments and result of the search for finished jobs."""

from __future__ import annotations

from enum import IntEnum
from typing import Final, NamedTuple


class Horizon(NamedTuple):
    """Bounds of a search: the highest scores, and the last event, at a time (ms). '' stands for no bound.

    `ended`: number of jobs that had ended by then, whether or not they still exist.
    """

    completed: str = ""
    failed: str = ""
    event: str = ""
    at: str = ""
    ended: str = ""


EVERYTHING: Final = Horizon()


class DiscoverSettings(NamedTuple):
    """How a query searches. `owner`: the query; `states`: the states of the jobs that it wants.

    accept_recreated: continues with a queue that has been deleted since. strict: the next call reports jobs that are
    unaccounted for again. events_only: leaves the sets of finished jobs to a later call. slice_ms: the look-back
    window is checked in slices of this size. known_end: position after the last entry that the query knows.
    """

    owner: str
    states: tuple[str, ...]
    lookback_ms: int
    slice_ms: int
    accept_recreated: bool = False
    strict: bool = False
    events_only: bool = False
    known_end: int = 0


class Remaining(IntEnum):
    """What a call of `discover` leaves to the next one. EVENTS includes jobs."""

    NOTHING = 0
    JOBS = 1
    EVENTS = 2


class DiscoverResult(NamedTuple):
    """Result of a call of `discover`. `end`: position after the last entry.

    `state`: ok, lost, taken (by `owner`), recreated (the queue has been deleted since) or behind (Redis has lost
    entries before the known end: nothing was examined). `missed`: approximate number of ended jobs that are unaccounted
    for because events were trimmed before they were read; -1: unknown. `cursor`: id of the last event read.
    """

    state: str
    end: int = 0
    remaining: Remaining = Remaining.NOTHING
    missed: int = 0
    owner: str = ""
    cursor: str = ""

    @property
    def more(self) -> bool:
        """Whether the search is incomplete."""
        return self.remaining is not Remaining.NOTHING

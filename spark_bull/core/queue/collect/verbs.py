"""The verbs of readers of results: one function for each script, with its name."""

from __future__ import annotations

from enum import IntEnum
from typing import Any, Final, NamedTuple

from spark_bull.core.queue.handle.handle import REMOVE_SIZE, QueueHandle


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


#: TTL of a ledger of results after the last call of its query.
RESULTS_TTL_MS: Final = 7 * 86_400_000


def discover(
    handle: QueueHandle, ledger: dict[str, str], settings: DiscoverSettings, horizon: Horizon, *, most: int
) -> DiscoverResult:
    """Finds finished jobs within a horizon and appends them to a ledger; examines about `most` events and jobs.

    ledger: the keys of the ledger.
    """
    args: dict[str, Any] = {
        **settings._asdict(),
        "most": most,
        "ttl_ms": RESULTS_TTL_MS,
        **{f"until_{name}": bound for name, bound in horizon._asdict().items()},
    }
    for name in ("accept_recreated", "strict", "events_only"):
        args[name] = int(args[name])
    state, *rest = handle.run("discover", args, **ledger)
    if state == b"ok":
        end, remaining, *of_events = rest
        cursor, missed = of_events or (b"", 0)
        return DiscoverResult("ok", end, Remaining(remaining), missed, cursor=cursor.decode())
    if state == b"behind":
        return DiscoverResult("behind", rest[0])
    return DiscoverResult(state.decode(), owner=rest[0].decode() if state == b"taken" else "")


def archive(handle: QueueHandle, ledger: dict[str, str], position: int) -> int | None:
    """Deletes jobs of entries before a position of a ledger, and the entries. Returns the position of the first entry.

    None: there is no ledger.
    """
    start: int | None = handle.run("archive", {"position": position, "limit": REMOVE_SIZE}, **ledger)
    return start

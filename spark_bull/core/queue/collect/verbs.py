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
    handle: QueueHandle, ledger: dict[str, str], horizon: Horizon, *, states: tuple[str, ...], **settings: int | str
) -> DiscoverResult:
    """Finds finished jobs within a horizon and appends them to a ledger.

    ledger: the keys of the ledger. states: the states of the jobs that are wanted. settings: the other arguments of the
    script; the look-back window is checked in slices of `slice_ms`.
    """
    bounds = {f"until_{name}": bound for name, bound in horizon._asdict().items()}
    args: dict[str, Any] = {"states": states, "ttl_ms": RESULTS_TTL_MS, **settings, **bounds}
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

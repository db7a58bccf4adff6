"""The verbs of readers of results: one function for each script, with its name; see core/queue/handle/verbs.py."""

from __future__ import annotations

from typing import Any, Final

from spark_bull.core.queue.handle.discovery import DiscoverResult, DiscoverSettings, Horizon, Remaining
from spark_bull.core.queue.handle.handle import REMOVE_SIZE, QueueHandle

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

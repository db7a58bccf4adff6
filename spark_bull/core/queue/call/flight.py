"""The calls of one task that have not ended: adds them, and looks for their outcomes."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from itertools import islice, takewhile
from typing import Final, NamedTuple, TypeVar

from spark_bull.core.clock import monotonic_s
from spark_bull.core.errors import ConnectionLost, PermissionDenied
from spark_bull.core.queue.call.caller import CALL_LEASE_MS, PARENTS, Call, CallEnd, Caller, chunks
from spark_bull.core.queue.monitor.find import workers
from spark_bull.core.threads import PollingThread

log = logging.getLogger("spark_bull")

Self = TypeVar("Self", bound="Lease")

#: A look reads at most this number of the oldest calls of each parent, and if these are too few, others in turn.
_OLDEST: Final = 64
_OTHERS: Final = 8
#: Pauses between two looks, s: longer after a look that has found less than an eighth of the calls, shorter after one
#: that has found a quarter. So a look reads many outcomes, and the workers always have jobs.
_MIN_PAUSE_S: Final = 0.002
_MAX_PAUSE_S: Final = 0.2
#: Interval of the looks for removed jobs, s.
_REMOVED_S: Final = 2.0
#: After so long without an outcome, s, the workers are counted, and again after the second time.
_IDLE_S: Final = 5.0
_COUNT_AGAIN_S: Final = 60.0

REMOVED: Final = "the job was removed before its result was known"


class EndedCall(NamedTuple):
    """A call and its outcome."""

    call: Call
    outcome: CallEnd


class Lease(PollingThread):
    """Renews the lease of a caller in a block, also while the task waits for rows, or for its results to be read."""

    def __init__(self, caller: Caller) -> None:
        super().__init__("call-lease", CALL_LEASE_MS / 4_000)
        self._caller = caller

    def __enter__(self: Self) -> Self:
        self._caller.hold()
        return super().__enter__()

    def poll(self) -> bool:
        try:
            self._caller.hold()
        except ConnectionLost as error:
            log.warning("the lease of a call is not renewed: %s", error)
        return False


class Flight:
    """timeout_ms: how long each call may take, from when it is added."""

    def __init__(self, caller: Caller, *, timeout_ms: int) -> None:
        self._caller, self._timeout_ms = caller, timeout_ms
        #: The calls of each parent and their deadlines, the oldest ones first.
        self._calls: list[dict[str, tuple[Call, float]]] = [{} for _ in range(PARENTS)]
        self._next_other = 0
        self._lapses = caller.lapses
        self._pause_s = _MIN_PAUSE_S
        now = monotonic_s()
        self._removed_at = now + _REMOVED_S
        self._count_at = now + _IDLE_S

    def __len__(self) -> int:
        return sum(map(len, self._calls))

    def add(self, texts: Sequence[str], rows: Sequence[int]) -> list[EndedCall]:
        """Adds calls; returns those that have ended before, as an earlier attempt of the task has added them."""
        calls = self._caller.calls(texts, rows)
        _, known = self._caller.add(calls)
        deadline = monotonic_s() + self._timeout_ms / 1000
        for call in calls:
            self._calls[call.parent][call.job_id] = call, deadline
        return self._taken(calls, known)

    def look(self) -> list[EndedCall]:
        """Reads outcomes, and pauses; returns the calls that have ended."""
        before, ended = len(self), self._found()
        now = monotonic_s()
        if ended:
            self._count_at = now + _IDLE_S
        elif now >= self._count_at:
            if len(self) and self._workers() == 0:
                log.warning("%s: %d calls wait for one", self._no_workers, len(self))
            self._count_at = now + _COUNT_AGAIN_S
        if now >= self._removed_at:
            ended += self._look_for_removed()
            self._removed_at = now + _REMOVED_S
        ended += self._timed_out(now)
        self._pause(len(ended), before)
        return ended

    def _found(self) -> list[EndedCall]:
        """The calls that have ended, of the oldest ones, as jobs end about in their order, and of some others."""
        ended = self._caller.ended([len(calls) for calls in self._calls])
        ended = [min(count, _OLDEST) for count in ended]
        oldest = self._sliced([slice(count + count // 4) for count in ended])
        found = self._taken(oldest, self._caller.outcomes(oldest))
        if found and len(found) >= sum(ended):
            return found
        # Other calls have ended, or another attempt of the task has jobs that have not.
        start = self._next_other
        self._next_other = start + _OTHERS if start + _OTHERS < max(map(len, self._calls)) else 0
        others = self._sliced([slice(start, start + _OTHERS)] * PARENTS)
        return found + self._taken(others, self._caller.outcomes(others))

    def _sliced(self, parts: Sequence[slice]) -> list[Call]:
        """These parts of the calls of each parent."""
        return [
            call
            for calls, part in zip(self._calls, parts, strict=True)
            for call, _ in islice(calls.values(), part.start, part.stop)
        ]

    def _look_for_removed(self) -> list[EndedCall]:
        """Ends the calls whose jobs someone has removed, or adds them again if the lease had lapsed: it was a sweep."""
        pending = self._sliced([slice(None)] * PARENTS)
        gone = self._caller.removed(pending)
        if gone:
            # The thread of the lease may not have noticed a lapse yet.
            self._caller.hold()
        if self._caller.lapses == self._lapses:
            return self._taken(gone, {call.job_id: CallEnd(None, REMOVED) for call in gone})
        self._lapses = self._caller.lapses
        # Calls that are neither pending nor ended are added.
        added, ended = 0, []
        for start, stop in chunks([call.text for call in pending]):
            number, known = self._caller.add(pending[start:stop])
            added += number
            ended += self._taken(pending[start:stop], known)
        log.warning("the lease of %d calls has lapsed: %d of their jobs were added again", len(pending), added)
        return ended

    def _taken(self, calls: Sequence[Call], outcomes: dict[str, CallEnd]) -> list[EndedCall]:
        """The calls that have outcomes; they are no longer in flight."""
        ended = [EndedCall(call, outcomes[call.job_id]) for call in calls if call.job_id in outcomes]
        for call, _ in ended:
            del self._calls[call.parent][call.job_id]
        return ended

    def _timed_out(self, now: float) -> list[EndedCall]:
        """Ends the calls whose time is over. They are the oldest ones."""
        late = [call for calls in self._calls for call, _ in takewhile(lambda one: one[1] <= now, calls.values())]
        if not late:
            return []
        reason = f"timeout: the job has not ended within {self._timeout_ms:,} ms"
        if self._workers() == 0:
            reason += f"; {self._no_workers}"
        self._caller.end(late, reason)
        return self._taken(late, self._caller.outcomes(late))

    def _pause(self, ended: int, before: int) -> None:
        if 8 * ended < before:
            self._pause_s = min(_MAX_PAUSE_S, self._pause_s * 1.3)
        elif 4 * ended > before:
            self._pause_s = max(_MIN_PAUSE_S, self._pause_s / 1.3)
        if ended < before:
            time.sleep(self._pause_s)

    @property
    def _no_workers(self) -> str:
        return f"0 workers are connected to queue {self._caller.handle.keys.queue}"

    def _workers(self) -> int | None:
        """The number of connected workers; None if Redis does not tell it."""
        handle = self._caller.handle
        try:
            return len(workers(handle.connection, handle.keys))
        except PermissionDenied:
            return None

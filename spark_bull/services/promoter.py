"""Promoter: delayed jobs wait for a worker once they are due, interrupted writes and stalled jobs are taken care of."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from threading import Event
from typing import Any, Final

from spark_bull.clock import monotonic_s
from spark_bull.errors import SparkBullError, expected
from spark_bull.options import READ, as_texts, parse_options
from spark_bull.queue.claim import promote_due
from spark_bull.queue.handle import CHUNK_SIZE, QueueHandle
from spark_bull.queue.writes import recover
from spark_bull.services.delayed_signal import watches
from spark_bull.services.queue_set import MISSING_S, QueueSet
from spark_bull.services.rescuer import rescue_and_tell
from spark_bull.services.service import Service

log = logging.getLogger("spark_bull")

#: The longest sleep; signals end it earlier.
SLEEP_S: Final = 5.0
#: Jobs due one after the other are gathered for so long.
GATHER_S: Final = 0.002
#: How often unfinished writes are looked for.
RECOVER_S: Final = 30.0


@dataclass(frozen=True)
class PromoterStats:
    """What a promoter has done so far."""

    promoted: int = 0
    rescued: int = 0
    failed: int = 0
    recovered: int = 0


class Promoter(Service):
    """Lets delayed jobs wait when they are due; sleeps until the next one is, or one is delayed to an earlier time.

        with Promoter("redis://localhost:6379", queues=["mail"]):
            ...

    It also rolls forward writes that were cut off, and (unless `rescue` is False) brings jobs back whose worker is
    gone, as a Rescuer with `check_ms` and `max_stalled` does. Any number may run at once, beside Node's own workers,
    too. queues: names or globs, all of the prefix when there are none; further options are those of the data source.
    Raises OptionError for a bad one.
    """

    def __init__(
        self,
        url: str | None = None,
        queues: Iterable[str] = (),
        *,
        rescue: bool = True,
        check_ms: int = 30_000,
        max_stalled: int = 1,
        **options: Any,
    ) -> None:
        super().__init__("promoter")
        for name, value, least in (("check_ms", check_ms, 1), ("max_stalled", max_stalled, 0)):
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise expected(name, f"an integer >= {least}", value)
        self._queues = QueueSet(parse_options(as_texts({"url": url, **options}), READ), queues)
        self._rescue = rescue
        self._check_ms = check_ms
        self._max_stalled = max_stalled
        self._signal = Event()
        self._watched: list[QueueHandle] = []
        self._watches: list[Service] = []
        self._recover_at = self._rescue_at = 0.0
        self.done = PromoterStats()

    def once(self) -> PromoterStats:
        """Does all that is due now, in this thread, and returns what that was. Raises ConnectionLost."""
        handles = self._queues.handles()
        self._do_chores(handles)
        while self._promote(handles) == 0:
            pass
        return self.done

    def round(self) -> None:
        self._signal.clear()
        handles = self._queues.handles()
        self._watch(handles)
        self._do_chores(handles)
        pause = self._promote(handles)
        if pause and not self._signal.wait(max(pause, GATHER_S)):
            return
        if pause > GATHER_S:
            self._over.wait(GATHER_S)

    def wake(self) -> None:
        self._signal.set()

    def stop(self, grace: float = 5.0) -> None:
        super().stop(grace)
        for watch in self._watches:
            watch.stop(0)

    def _promote(self, handles: Sequence[QueueHandle]) -> float:
        """One chunk of each queue; returns for how many s there is nothing more to be done, 0 when there is."""
        pause = min(SLEEP_S, max(0.0, min(self._recover_at, self._rescue_at) - monotonic_s()))
        if not self._queues.complete:
            pause = min(pause, MISSING_S)
        moved = 0
        for handle in handles:
            promoted = promote_due(handle, CHUNK_SIZE)
            moved += promoted.moved
            if promoted.next_due is not None:
                pause = min(pause, max(0.0, (promoted.next_due - promoted.now) / 1000))
        if moved:
            self.done = replace(self.done, promoted=self.done.promoted + moved)
        return pause

    def _do_chores(self, handles: Sequence[QueueHandle]) -> None:
        now = monotonic_s()
        if now >= self._recover_at:
            for handle in handles:
                self._recover(handle)
            self._recover_at = now + RECOVER_S
        if not self._rescue:
            self._rescue_at = now + SLEEP_S
        elif now >= self._rescue_at:
            for handle in handles:
                rescued = rescue_and_tell(handle, self._check_ms, self._max_stalled)
                self.done = replace(
                    self.done,
                    rescued=self.done.rescued + len(rescued.stalled),
                    failed=self.done.failed + len(rescued.failed),
                )
            self._rescue_at = now + self._check_ms / 1000

    def _recover(self, handle: QueueHandle) -> None:
        for record in recover(handle):
            log.warning("queue %s: finished write %s, %d jobs", handle.keys.queue, record.id, record.done)
            self.done = replace(self.done, recovered=self.done.recovered + 1)

    def _watch(self, handles: Sequence[QueueHandle]) -> None:
        """Watches the signals of these queues, once their set has changed."""
        if [handle.keys for handle in handles] == [handle.keys for handle in self._watched]:
            return
        for watch in self._watches:
            try:
                watch.stop(0)
            except SparkBullError:
                log.debug("a watch had ended already", exc_info=True)
        self._watched = list(handles)
        self._watches = watches(handles, self._signal)
        for watch in self._watches:
            watch.start()

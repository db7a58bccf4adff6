"""Claims jobs for a query, keeps their locks, and claims the next ones while a batch is worked on."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Final

from spark_bull.queue.claim import ClaimSettings, take_up
from spark_bull.queue.claim_ledger import ClaimLedger, Portion
from spark_bull.worker.claim_keeper import ClaimKeeper

#: What jobs claimed but not handed out yet may hold, packed; beyond that, tasks read them from Redis.
MAX_PACKED_BYTES: Final = 64 << 20


class Claimer:
    """For one query, in the process that lives as long as it does. Its threads end with the process."""

    def __init__(self, ledger: ClaimLedger, claim_settings: ClaimSettings, chunk_size: int) -> None:
        self.ledger = ledger
        self._claim_settings = claim_settings
        self._chunk_size = chunk_size
        self._keeper = ClaimKeeper(ledger.handle, ledger.reader, claim_settings.lock_ms)
        self._portions: list[Portion] = []
        self._ahead: Future[int] | None = None
        #: For how long, ms, no job might start when jobs were claimed last.
        self.limited_ms = 0
        #: Up to which position jobs are locked and kept so, and their schedules advanced; None: not known yet.
        self._taken: int | None = None

    def end(self) -> int:
        """How many jobs have ever been claimed, after what is being claimed ahead. Raises ConnectionLost."""
        if self._ahead is not None:
            ahead, self._ahead = self._ahead, None
            ahead.result()
        return self.ledger.end()

    def claim(self, most: int) -> int:
        """Claims up to `most` jobs; returns how many."""
        return self._claim(self._claim_settings, most)

    def _claim(self, claim_settings: ClaimSettings, most: int) -> int:
        portions, self.limited_ms = self.ledger.claim(claim_settings, most, self._chunk_size)
        claimed = sum(portion.jobs for portion in portions)
        if portions:
            start = portions[0].start
            self._keeper.hold(self.ledger.ids(start, start + claimed))
            self._taken = start + claimed
            self._portions += portions
            if sum(len(portion.packed) for portion in self._portions) > MAX_PACKED_BYTES:
                self._portions.clear()
        return claimed

    def claim_ahead(self, most: int) -> None:
        """Begins to claim what the next batch is to have.

        Nothing while the queue limits how many jobs are active or start in a time: none of these starts now.
        """
        if self._ahead is None:
            pool = ThreadPoolExecutor(1, thread_name_prefix="spark-bull-claimer")
            self._ahead = pool.submit(self._claim, replace(self._claim_settings, at_once=0), most)
            pool.shutdown(wait=False)

    def take_up(self, start: int, stop: int) -> None:
        """Takes up the jobs at these positions that were claimed, but by a process or a call that came no further.

        The first time these are all from `start` on: what was claimed ahead before a restart, too.
        """
        first = start if self._taken is None else max(start, self._taken)
        if self._taken is None:
            stop = self.ledger.end()
        if first < stop:
            ids = self.ledger.ids(first, stop)
            take_up(self.ledger.handle, self.ledger.reader, ids, self._claim_settings.lock_ms)
            self._keeper.hold(ids)
        self._taken = max(first, stop)

    def portions(self, start: int, stop: int) -> Sequence[Portion]:
        """What the jobs at these positions hold, in order, and only once; nothing unless it is all here."""
        found = [
            portion for portion in self._portions if start <= portion.start and portion.start + portion.jobs <= stop
        ]
        self._portions = [portion for portion in self._portions if portion.start >= stop]
        return found if sum(portion.jobs for portion in found) == stop - start else []

"""Ledgers of results against a model: whatever happens to jobs between discoveries, each finish is delivered once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from redis import Redis

from spark_bull.core.dialects.events import ENDS
from spark_bull.core.model.outcomes import Keep
from spark_bull.core.queue.bull_queue import BullQueue
from spark_bull.core.queue.collect.result_ledger import ResultLedger
from spark_bull.core.queue.collect.verbs import EVERYTHING, Horizon
from tests.support.wait import wait_until
from tests.support.work_bench import AT_ONCE, Entry, Finisher, discover_all, entries

#: So short that jobs are discovered inside the window, at its end, and after it.
LOOKBACK_MS = 100

#: A little less than the tolerated delay: see `_stamp_uniquely`.
OFFSETS = st.integers(20 - LOOKBACK_MS, LOOKBACK_MS)
OPERATIONS = st.one_of(
    st.tuples(st.just("finish"), st.sampled_from(ENDS), OFFSETS),
    st.tuples(st.just("finish"), st.sampled_from(ENDS), OFFSETS),
    st.tuples(st.just("finish_and_go"), st.sampled_from(ENDS)),
    st.tuples(st.just("retry"), st.integers(0, 99)),
    st.tuples(st.just("remove"), st.integers(0, 99)),
    st.tuples(st.just("discover"), st.sampled_from([1, 3, 50])),
    st.tuples(st.just("discover_all")),
    st.tuples(st.just("aim")),
    st.tuples(st.just("discover_to_horizon"), st.sampled_from([3, 50])),
    st.tuples(st.just("cut"), st.integers(0, 5)),
)


@dataclass
class Model:
    """A queue, its reader, and the expected deliveries: at least `least`, at most `ended` of each job and state.

    `there`: jobs that are still in their state; `left`: states that a job has left; `stamps`: when jobs have finished.
    """

    bench: Finisher
    ledger: ResultLedger
    ended: Counter[Entry] = field(default_factory=Counter)
    least: Counter[Entry] = field(default_factory=Counter)
    there: list[Entry] = field(default_factory=list)
    delivered: list[Entry] = field(default_factory=list)
    stamps: set[tuple[str, int]] = field(default_factory=set)
    horizon: Horizon = EVERYTHING
    left: set[str] = field(default_factory=set)

    def put_crowd(self, count: int) -> None:
        """Adds jobs before the reader starts, from before the window to its end."""
        start = self.bench.handle.connection.now_ms() - 3 * LOOKBACK_MS
        for job_id in self.bench.crowd([start + 4 * LOOKBACK_MS * n // count for n in range(count)]):
            self._owe((job_id, "completed"), there=True)

    def finish(self, state: str, offset_ms: int = 0, keep: Keep = None) -> None:
        """Finishes the job that waits longest, or a new one if none waits."""
        if not self.bench.counts().get("wait"):
            self.bench.add()
        (job_id,) = self.bench.end(state, offset_ms, limit=1, keep=keep)
        there = bool(self.bench.client.exists(self.bench.handle.keys.job(job_id)))
        if there:
            self._stamp_uniquely(state, job_id)
        self._owe((job_id, state), there=there)

    def finish_and_go(self, state: str) -> None:
        self.finish(state, keep=AT_ONCE)

    def _stamp_uniquely(self, state: str, job_id: str) -> None:
        """A job never finishes twice at the same time; with the offsets of this test it could."""
        if self.bench.handle.dialect.name == "bull-1":
            return
        score = self.bench.score(state, job_id)
        assert score is not None
        while (job_id, score) in self.stamps:
            score -= 1
            self.bench.stamp(state, job_id, score)
        self.stamps.add((job_id, score))

    def _owe(self, entry: Entry, *, there: bool) -> None:
        self.ended[entry] += 1
        if there:
            self.there.append(entry)
        if there or self._has_event(entry):
            self.least[entry] += 1

    def _has_event(self, entry: Entry) -> bool:
        return self.bench.bullmq and not entry[0].startswith("crowd")

    def _leaves(self, entry: Entry) -> None:
        """A job that has left its state must be delivered only if it has an event, or was delivered."""
        self.there.remove(entry)
        self.left.add(entry[1])
        if not self._has_event(entry):
            self.collect()
            self.least[entry] = min(self.least[entry], self.delivered.count(entry))

    def retry(self, which: int) -> None:
        failed = [entry for entry in self.there if entry[1] == "failed"]
        if failed:
            entry = failed[which * len(failed) // 100]
            self.bench.queue.retry(entry[0])
            self._leaves(entry)
            if self.bench.handle.dialect.name == "bull-1":
                # A SET does not show a job that left and returned between two discoveries.
                self.discover_all()

    def remove(self, which: int) -> None:
        if self.there:
            entry = self.there[which * len(self.there) // 100]
            self.bench.queue.remove(entry[0])
            self._leaves(entry)

    def discover(self, most: int) -> None:
        assert self.ledger.discover(most=most).state == "ok"
        self.collect()

    def discover_all(self) -> None:
        """A complete discovery misses no job, unless a removed job makes the size of a slice unchanged."""
        for _ in range(2):
            # A scan of a SET that was already running may have missed jobs that finished since.
            discover_all(self.ledger, most=50)
        self.collect()
        found = Counter(self.delivered)
        for entry in self.there:
            if entry[1] not in self.left or self.bench.handle.dialect.name == "bull-1":
                assert found[entry] >= self.least[entry], entry

    def aim(self) -> None:
        self.horizon = self.ledger.horizon()

    def discover_to_horizon(self, most: int) -> None:
        discover_all(self.ledger, self.horizon, most)
        self.collect()

    def cut(self, kept: int) -> None:
        self.collect()
        self.ledger.cut(max(0, len(self.delivered) - kept))

    def collect(self) -> None:
        self.delivered += entries(self.ledger, len(self.delivered))

    def all_delivered(self) -> bool:
        self.discover_all()
        return not self.least - Counter(self.delivered)

    def check(self) -> None:
        """Discovers until the window has passed; by then every finish is delivered once."""
        now = self.bench.handle.connection.now_ms
        wait_until(self.all_delivered, "all expected deliveries")
        passed = now() + 2 * LOOKBACK_MS + 20
        wait_until(lambda: now() > passed, "the window to pass")
        self.discover_all()
        found = Counter(self.delivered)
        assert self.least - found == Counter()
        assert found - self.ended == Counter()


@pytest.mark.parametrize("protocol", ["bull-1", "bull", "bullmq"])
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from([0, 1_200]), st.lists(OPERATIONS, min_size=15, max_size=60))
def test_each_finish_is_delivered_once(
    open_queue: Callable[..., BullQueue],
    client: Redis,
    protocol: str,
    crowd: int,
    operations: list[tuple[Any, ...]],
) -> None:
    bench = Finisher(open_queue(uuid4().hex, protocol), client, twice=False)
    model = Model(bench, bench.ledger(lookback_ms=LOOKBACK_MS))
    model.put_crowd(crowd)
    for name, *args in operations:
        getattr(model, name)(*args)
    model.check()

"""Filters of queues, in every dialect."""

from __future__ import annotations

import pytest

from spark_bull.core.errors import OptionError
from spark_bull.core.queue.monitor.queue_filter import QueueFilter, selecting
from spark_bull.core.store.steps import run
from tests.support.work_bench import WorkBench, completed

HOUR_MS = 3_600_000


def fits(bench: WorkBench, **bounds: float) -> bool:
    return run(bench.handle.connection, selecting(bench.handle, QueueFilter(**bounds)))  # type: ignore[arg-type]


def test_the_length_counts_jobs_that_are_not_active_and_have_not_ended(bench: WorkBench) -> None:
    bench.add(3)
    bench.add(2, delay=HOUR_MS)
    claim = bench.claim(2)
    bench.claim(1)
    bench.work(completed(claim))
    assert bench.counts() == {"active": 1, "completed": 2, "delayed": 2}
    assert [fits(bench, min_length=n) for n in (2, 3)] == [True, False]
    assert [fits(bench, max_length=n) for n in (1, 2)] == [False, True]
    assert fits(bench)


def test_rates_and_idleness_are_those_of_the_last_minute(bench: WorkBench) -> None:
    bench.add(6)
    bench.work(completed(bench.claim(6)))
    known = bench.queue.protocol != "bull-1"
    assert fits(bench, min_finished_per_s=0.05) == known
    assert fits(bench, min_added_per_s=0.05) == bench.bullmq
    assert fits(bench, min_idle_ms=0) == known
    assert not fits(bench, min_idle_ms=HOUR_MS)
    assert not fits(bench, min_finished_per_s=1_000)


def test_a_queue_that_is_too_short_is_not_read_further(bench: WorkBench) -> None:
    bench.add(1)
    steps = selecting(bench.handle, QueueFilter(min_length=2, min_idle_ms=0))
    commands = next(steps)
    with pytest.raises(StopIteration) as end:
        steps.send(bench.handle.connection.pipeline(commands))
    assert end.value.value is False


def test_bounds_that_exclude_each_other_are_an_error() -> None:
    with pytest.raises(OptionError, match="expected `minLength` to be at most `maxLength`, got: 3 and 2"):
        QueueFilter(min_length=3, max_length=2)

"""The slots that a queue needs, by its statistics."""

from __future__ import annotations

from typing import Any

import pytest

from spark_bull.model.jobs import JobStats
from spark_bull.prometheus.collect import wanted_slots_of

STATS: dict[str, Any] = {
    "queue": "mail",
    "name": None,
    "jobs": {},
    "is_estimate": False,
    "oldest_waiting_ms": None,
    "timed": 0,
    "wait": None,
    "run": None,
    "work_ms": 0,
    "added_per_s": None,
    "added_over_ms": None,
    "finished_per_s": 0.0,
    "finished_over_ms": 60_000,
}


@pytest.mark.parametrize(
    ("stats", "wanted"),
    [
        ({}, 0),
        ({"jobs": {"delayed": 5, "completed": 9}}, 0),
        ({"jobs": {"active": 5}}, 1),
        # Nothing is known of the duration: one slot, which shows it.
        ({"jobs": {"wait": 10_000}}, 1),
        ({"jobs": {"wait": 10_000}, "work_ms": None, "finished_per_s": None}, 1),
        # 60 jobs of 2 s within 30 s.
        ({"jobs": {"wait": 40, "prioritized": 20}, "timed": 10, "work_ms": 20_000}, 4),
        # A job of 2 s each 100 ms keeps 20 slots busy.
        ({"timed": 10, "work_ms": 20_000, "finished_per_s": 10.0}, 20),
        # Only 100 of 600 jobs that have ended were read; the work is that of all.
        ({"timed": 100, "work_ms": 600_000, "finished_per_s": 10.0}, 10),
    ],
)
def test_slots_keep_up_with_the_queue_and_start_what_waits_in_time(stats: dict[str, Any], wanted: int) -> None:
    assert wanted_slots_of(JobStats(**{**STATS, **stats}), 60_000, 100, 30.0) == wanted

"""A slot: the order of its queues, the sizes of chunks and batches, and the failures that it reports."""

from __future__ import annotations

import json
import random
from collections import Counter
from typing import NamedTuple

import pytest

from spark_bull.core.model.outcomes import Failed, Outcomes, Retried
from spark_bull.run.claims.claimer import LEAST, BatchSize
from spark_bull.run.claims.claimer import MOST as LARGEST
from spark_bull.run.slot import slot_report
from spark_bull.run.slot.chunk_loop import ChunkSize
from spark_bull.run.slot.slot_loop import TURN, Turns, in_order
from spark_bull.run.slot.slot_report import PERIOD_S, Failures


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [1000.0]
    monkeypatch.setattr(slot_report, "monotonic_s", lambda: now[0])
    return now


def outcomes(count: int) -> Outcomes:
    stack = json.dumps(["the first trace", "the last trace"])
    failed = [Failed(str(n), f"reason {n}", stack, None, 1) for n in range(count)]
    return Outcomes("token", failed=failed, retried=[Retried("r", "again", "[]", 0, False)])


def test_the_last_failures_are_reported_with_their_last_traces(clock: list[float]) -> None:
    found = Failures()
    found.add("mail", outcomes(1))
    first, second = found.as_report()
    assert first == {"number": 1, "queue": "mail", "job": "0", "reason": "reason 0", "trace": "the last trace"}
    assert (second["number"], second["reason"], second["trace"]) == (2, "again", "")


def test_a_slot_reports_a_few_a_minute(clock: list[float]) -> None:
    found = Failures()
    found.add("mail", outcomes(10))
    assert [one["number"] for one in found.as_report()] == [1, 2, 3]
    clock[0] += PERIOD_S
    found.add("mail", outcomes(0))
    assert [one["number"] for one in found.as_report()] == [2, 3, 12]


def test_texts_are_bounded(clock: list[float]) -> None:
    found = Failures()
    found.add("mail", Outcomes("token", failed=[Failed("1", "r" * 10**6, json.dumps(["t" * 10**6]), None, 1)]))
    assert len(json.dumps(found.as_report())) < 5_000
    # A reason is no trace.
    found.add("mail", Outcomes("token", failed=[Failed("1", "no address", json.dumps(["no address"]), None, 1)]))
    assert [(one.reason, one.trace) for one in found.last][-1] == ("no address", "")


class Queue(NamedTuple):
    name: str
    weight: int


def test_the_first_queue_is_drawn_in_proportion_to_the_weights() -> None:
    random.seed(7)
    queues = [Queue("mail", 1), Queue("urgent", 3), Queue("report", 2)]
    first = Counter(in_order(queues)[0].name for _ in range(6_000))
    assert 900 < first["mail"] < 1_100
    assert 2_850 < first["urgent"] < 3_150
    assert 1_850 < first["report"] < 2_150
    assert {queue.name for queue in in_order(queues)} == {"mail", "urgent", "report"}


def test_a_slot_stays_with_a_queue_that_has_jobs_and_draws_in_proportion_then() -> None:
    random.seed(7)
    queues = [Queue("mail", 1), Queue("urgent", 3)]
    turns, claimed = Turns(queues), []
    for _ in range(2_000 * TURN):
        first = turns.order()[0]
        claimed.append(first.name)
        turns.claimed(first)
    parts = [claimed[start : start + TURN] for start in range(0, len(claimed), TURN)]
    assert all(len(set(part)) == 1 for part in parts)
    assert 450 < Counter(part[0] for part in parts)["mail"] < 550


def test_a_slot_stays_with_the_queue_that_had_jobs_while_the_first_one_has_none() -> None:
    empty, full = Queue("empty", 1), Queue("full", 1)
    turns = Turns([empty, full])
    turns.claimed(full)
    assert [turns.order()[0] for _ in range(20)] == [full] * 20


def test_chunks_grow_with_quick_jobs_and_shrink_with_slow_ones() -> None:
    size = ChunkSize(200)
    sizes = [size.current]
    for _ in range(5):
        size.update(size.current, 0.001)
        sizes.append(size.current)
    assert sizes == [16, 32, 64, 128, 200, 200]
    size.update(200, 20.0)
    assert size.current == 2
    size.update(2, 10.0)
    assert size.current == 1


def test_batches_grow_with_the_backlog_while_they_are_quick() -> None:
    size = BatchSize()
    size.update(10, 1.0)
    assert size.current == LEAST  # A small batch shows only its fixed cost.
    for jobs, seconds, expected in (
        (LEAST // 2, 0.1, 5 * LEAST),
        (LEAST, 1.0, 5 * LEAST),
        (5 * LEAST, 2.0, LARGEST),
        (10, 1.0, LARGEST),
        (LEAST, 6.0, LEAST),
        (LEAST, 0.0, LARGEST),
        (LARGEST, 10.0, LARGEST // 2),
        (LARGEST, 60.0, LEAST),
    ):
        size.update(jobs, seconds)
        assert size.current == expected


def test_a_batch_begins_with_a_worthwhile_part_of_its_largest_size() -> None:
    size = BatchSize()
    assert size.enough == LEAST
    size.update(LEAST, 0.1)
    assert (size.current, size.enough) == (LARGEST, LARGEST // 4)
    given = BatchSize(7)
    for seconds in (0.001, 100.0):
        given.update(7, seconds)
        assert (given.current, given.most, given.enough) == (7, 7, 7)
